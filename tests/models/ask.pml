/* Two peers that may both ask while both wait: can they wait for each other for good?
 *
 * The daemon runs one method at a time, on one thread; another thread reads. A method that runs may
 * ask the client, and waits. The client, an Emacs, has one thread, too: it makes calls and goes on,
 * or makes calls and waits; it handles a question while it waits, or when it is idle; and what
 * handles a question may itself make calls and wait. Methods are cancelled and give up, clients
 * quit at a question, cancel, and disappear.
 *
 * Spin searches all orders of events, for a few calls and questions:
 *
 *     spin -a ask.pml && gcc -O2 -o pan pan.c && ./pan -m100000
 *
 * What must hold is in `Quiescence`: where nothing can happen any more, nobody waits. What may happen
 * but need not (an alarm of the method's, a cancel) is decided beforehand, else it would rescue every
 * deadlock. -DDISAPPEARS is for a client that goes away in the middle.
 *
 * Three rules are needed, and without any of them Spin finds the deadlock:
 *
 *   -DUNMARKED          calls made in order to answer don't say so (`_meta.during`)
 *   -DONLY_WHILE_OPEN   such a call is served inside a wait only while its own question is open. A
 *                       method may have given that up; the client does not know yet, and waits, in
 *                       the middle of answering another one's.
 *   -DSTOPS_WHEN_FULL   the daemon reads no further when its queue is full and a method waits
 *
 * See "Never a deadlock" in docs/asking.md; server/questions.py is what is modelled here.
 */

#ifndef CALLS
#define CALLS 3
#endif
#ifndef QUESTIONS
#define QUESTIONS 2
#endif
#define KEPT 1          /* calls in the daemon's queue, beyond which it reads no further */
#define NONE 255

mtype = { CALL, RESULT, ASK, ANSWER, QUIT, CANCEL, END, HANDLER, WAIT };

chan to_daemon = [1] of { mtype, byte, byte };  /* kind, id, the question it is made during */
chan to_client = [1] of { mtype, byte };

/* What the daemon's two threads share. */

chan queue = [KEPT] of { byte };                /* calls that wait for their turn */
chan inside = [CALLS] of { byte };              /* calls that are served inside a wait */
chan back = [CALLS] of { byte };                /* those that came too late for that */
bool is_open[QUESTIONS];
bool is_answered[QUESTIONS];
bool is_cancelled[CALLS];
bool is_refused[CALLS];
bool will_give_up[QUESTIONS];                   /* by an alarm of the method's */
bool will_cancel[CALLS];                        /* the client, while it waits */
bool is_waiting;                                /* the main thread */
bool is_over;                                   /* the input has ended */
byte waits_for_answer;                          /* methods that do */
byte asked;                                     /* questions so far */
byte stack[CALLS];                              /* the calls that run, each inside the last */
byte question[CALLS];                           /* which each of them waits for */
byte depth;

/* And the client's. */

byte made;                                      /* calls so far */
bool is_done[CALLS];
bool is_gone;

inline cancel_from(id) {
    /* Cancel a call, and those that run inside it. */
    is_cancelled[id] = true;
    level = 0;
    do
    :: level < depth && stack[level] != id -> level++
    :: else -> break
    od;
    do
    :: level < depth -> is_cancelled[stack[level]] = true; level++
    :: else -> break
    od;
    level = 0
}

active proctype DaemonReader() {
    mtype kind; byte id, during, level, asker;
end_reading:
    do
    :: atomic {
#ifdef STOPS_WHEN_FULL
        nfull(queue) && nempty(to_daemon) ->
#else
        (nfull(queue) || is_waiting) && nempty(to_daemon) ->
#endif
        to_daemon ? kind, id, during;
        if
        :: kind == CALL ->
            if
#ifdef ONLY_WHILE_OPEN
            :: during != NONE && is_open[during] -> inside ! id
#else
            :: during != NONE && waits_for_answer > 0 -> inside ! id
#endif
            :: else ->
                if
                :: nfull(queue) -> queue ! id
                :: full(queue) -> is_refused[id] = true; inside ! id
                fi
            fi
        :: kind == ANSWER && is_open[id] -> is_answered[id] = true; is_open[id] = false
        :: kind == QUIT && is_open[id] ->
            is_answered[id] = true; is_open[id] = false;
            level = 0;
            do
            :: question[level] != id -> level++
            :: else -> break
            od;
            asker = stack[level];
            cancel_from(asker)
        :: (kind == ANSWER || kind == QUIT) && !is_open[id] -> skip    /* too late */
        :: kind == CANCEL -> cancel_from(id)
        :: kind == END -> is_over = true; break
        fi;
        kind = 0; id = 0; during = 0; asker = 0
        }
    od
}

inline send_to_client(what, which) {
    if
    :: to_client ! what, which
    :: is_over -> skip
    fi
}

inline begin_call(id) {
    stack[depth] = id; question[depth] = NONE; depth++
}

#define TOP (depth - 1)
#define CURRENT stack[TOP]
#define WAITED_FOR question[TOP]
#define IS_ENDED (is_answered[WAITED_FOR] || is_cancelled[CURRENT] || is_over)

active proctype DaemonMain() {
    byte id;
end_idle:
    do
    :: atomic { depth == 0 && nempty(back) -> back ? id; begin_call(id); id = 0 }
    :: atomic { depth == 0 && empty(back) && nempty(queue) -> queue ? id; begin_call(id); id = 0 }

    /* A method runs. */
    :: depth > 0 && WAITED_FOR == NONE ->
        if
        :: send_to_client(RESULT, CURRENT);
            atomic { stack[TOP] = 0; depth-- }
        :: atomic { asked < QUESTIONS && !is_cancelled[CURRENT] && !is_over && !is_refused[CURRENT] ->
            is_open[asked] = true; WAITED_FOR = asked; waits_for_answer++;
            if
            :: will_give_up[asked] = true
            :: skip
            fi;
            asked++ }
            send_to_client(ASK, WAITED_FOR)
        fi

    /* A method waits. */
    :: depth > 0 && WAITED_FOR != NONE ->
        is_waiting = true;
        if
        :: IS_ENDED || nempty(inside) -> skip
        :: will_give_up[WAITED_FOR] -> is_waiting = false; goto gives_up
        fi;
        is_waiting = false;
        if
        :: IS_ENDED ->
gives_up:   atomic {
            is_open[WAITED_FOR] = false;
            WAITED_FOR = NONE; waits_for_answer--;
            /* Where no other method waits, what came to be served inside waits its turn. */
            if
            :: waits_for_answer == 0 ->
                do
                :: inside ? id -> back ! id
                :: empty(inside) -> break
                od
            :: else -> skip
            fi;
            id = 0 }
        :: !IS_ENDED -> atomic { inside ? id -> begin_call(id); id = 0 }
        fi
    od
}

/* The client. It reads while it writes, as Emacs does. */

chan inbox = [CALLS + QUESTIONS] of { mtype, byte };

active proctype ClientReader() {
    mtype kind; byte id;
end_reading:
    do
    :: atomic { to_client ? kind, id -> inbox ! kind, id; kind = 0; id = 0 }
    od
}

byte frames;                                    /* of the client's stack */
mtype frame_kind[CALLS + QUESTIONS];            /* handles a question, or waits for a result */
byte frame_id[CALLS + QUESTIONS];

inline push(kind, id) {
    frame_kind[frames] = kind; frame_id[frames] = id; frames++
}

inline pop() {
    frames--; frame_kind[frames] = 0; frame_id[frames] = 0
}

inline hear() {
    /* A result is noted, a question is handled at once. */
    atomic {
        inbox ? kind, id ->
        if
        :: kind == RESULT -> is_done[id] = true
        :: kind == ASK -> push(HANDLER, id)
        fi;
        kind = 0; id = 0 }
}

inline call(in_order_to_answer) {
    /* Make a call; wait for its result, or go on. */
    atomic {
        during = in_order_to_answer;
        id = made; made++;
        if
        :: push(WAIT, id)
        :: push(WAIT, id); will_cancel[id] = true
        :: skip
        fi }
    atomic { to_daemon ! CALL, id, during -> id = 0; during = 0 }
}

#define KIND frame_kind[frames - 1]
#define ID frame_id[frames - 1]

active proctype ClientMain() {
    mtype kind; byte id, during;
end_idle:
    do
    /* Idle. */
    :: frames == 0 && made < CALLS -> call(NONE)
    :: frames == 0 && nempty(inbox) -> hear()

    /* Inside a handler: it makes calls, and answers or quits. */
    :: frames > 0 && KIND == HANDLER && made < CALLS ->
#ifdef UNMARKED
        call(NONE)
#else
        call(ID)
#endif
    :: frames > 0 && KIND == HANDLER -> to_daemon ! ANSWER, ID, NONE; atomic { pop() }
    :: frames > 0 && KIND == HANDLER -> to_daemon ! QUIT, ID, NONE; atomic { pop() }

    /* Waiting for a result. */
    :: atomic { frames > 0 && KIND == WAIT && is_done[ID] -> pop() }
    :: frames > 0 && KIND == WAIT && !is_done[ID] && nempty(inbox) -> hear()
    :: frames > 0 && KIND == WAIT && !is_done[ID] && will_cancel[ID] ->
        will_cancel[ID] = false; to_daemon ! CANCEL, ID, NONE

#ifdef DISAPPEARS
    :: to_daemon ! END, 0, NONE -> is_gone = true; break
#endif
    od
}

active proctype Quiescence() {
    byte id;
    timeout ->
    assert(depth == 0 && empty(queue) && empty(inside) && empty(back) || is_over);
    assert(!is_waiting);
    if
    :: is_gone -> skip
    :: else ->
        assert(frames == 0);
        id = 0;
        do
        :: id < made -> assert(is_done[id]); id++
        :: else -> break
        od
    fi
}
