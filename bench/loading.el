;;; loading.el --- Time what an init file pays  -*- lexical-binding: t; -*-

;;; Commentary:

;; Print, as JSON, the milliseconds that loading the compiled library takes
;; (DUET_RPC_ELC names it), and those of (duet-rpc-mode 1) after that, which
;; defines the commands that the last session knew.  With BENCH_DUET, the
;; command of the daemon, be that last session.

;;; Code:

(require 'json)

(defun bench-ms (function)
  "Return the milliseconds that FUNCTION takes."
  (let ((begin (float-time)))
    (funcall function)
    (* 1000 (- (float-time) begin))))

(let* ((load (bench-ms (lambda () (load (getenv "DUET_RPC_ELC") nil t))))
       (mode (bench-ms (lambda () (duet-rpc-mode 1)))))
  (when (getenv "BENCH_DUET")
    (let ((duet-rpc-program (append (json-parse-string (getenv "BENCH_DUET")) nil)))
      (duet-rpc--refresh-commands)
      (while (not (file-exists-p (duet-rpc--commands-file)))
        (accept-process-output nil 0.05))))
  (princ (json-encode (list :emacs emacs-version :load load :mode mode))))

;;; loading.el ends here
