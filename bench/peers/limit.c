/* A loop that finds where frames end and answers each with fixed bytes.

   It reads no JSON and checks nothing. One read, one write for each frame, as the
   simplest program would do it. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char reply[] =
    "Content-Length: 59\r\n\r\n"
    "{\"jsonrpc\":\"2.0\",\"id\":1000000,\"result\":{\"version\":\"0.1.0\"}}";

static char buffer[16 * 1024 * 1024];

int main(void)
{
    size_t filled = 0, at = 0;
    for (;;) {
        ssize_t got = read(0, buffer + filled, sizeof buffer - 1 - filled);
        if (got <= 0)
            return 0;
        filled += (size_t)got;
        buffer[filled] = 0;
        for (;;) {
            /* Content-Length: 43\r\n\r\n{... */
            if (filled - at < 20)
                break;
            char *end;
            size_t length = strtoul(buffer + at + 16, &end, 10);
            size_t next = (size_t)(end + 4 - buffer) + length;
            if (next > filled)
                break;
            at = next;
            if (write(1, reply, sizeof reply - 1) < 0)
                return 1;
        }
        memmove(buffer, buffer + at, filled - at);
        filled -= at;
        at = 0;
    }
}
