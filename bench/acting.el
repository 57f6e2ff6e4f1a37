;;; acting.el --- Time what Python does with Emacs  -*- lexical-binding: t; -*-

;;; Commentary:

;; Time calls from Python to Emacs and back, those of `ctx.emacs.call' and,
;; if BENCH_EPC is set, those of EPC; and the processor's time that
;; a megabyte takes which is streamed into a buffer, beside the same text
;; inserted at once.  Print all of it as JSON.
;;
;; DUET_RPC_ELC names the compiled library, BENCH_DUET the command of the
;; daemon, BENCH_EPC that of the other one.

;;; Code:

(require 'json)
(load (getenv "DUET_RPC_ELC") nil t)

(defconst bench-rounds (string-to-number (getenv "BENCH_ROUNDS")))
(defconst bench-calls 100)
(defconst bench-pieces 10000)
(defconst bench-size 100)

(defun bench-command (variable)
  "Return the command in the environment's VARIABLE."
  (append (json-parse-string (getenv variable)) nil))

(defun bench-connect-epc ()
  "Return a connection to the peer that uses EPC, or nil."
  (when (getenv "BENCH_EPC")
    (dolist (name '("concurrent" "ctable" "deferred" "epc"))  ; as packages are
      (byte-compile-file (locate-library (concat name ".el"))))
    (require 'epc)
    (let* ((command (bench-command "BENCH_EPC"))
           (epc (epc:start-epc (car command) (cdr command))))
      (epc:define-method epc 'add_one (lambda (&rest arguments) (1+ (car arguments))))
      epc)))

(defun bench-call-epc (epc)
  "Let the peer behind the connection EPC measure; return nil where it does not run."
  (with-timeout (20 nil)
    (epc:call-sync epc 'measure (list bench-calls))))

(defun bench-cpu-ms (function)
  "Return the milliseconds of processor time that Emacs takes for FUNCTION."
  (garbage-collect)
  (let ((begin (float-time (get-internal-run-time))))
    (funcall function)
    (* 1000 (- (float-time (get-internal-run-time)) begin))))

(defun bench-stream ()
  "Stream a megabyte into the current buffer."
  (duet-rpc--run "stream" (list :pieces bench-pieces :size bench-size) 'stream)
  (while (or (duet-rpc--running-calls) duet-rpc--queue)
    (accept-process-output nil 0.01))
  (unless (= (buffer-size) (* bench-pieces bench-size))
    (error "Only %d characters have come" (buffer-size))))

(let* ((duet-rpc-program (bench-command "BENCH_DUET"))
       ;; It is older than any Emacs here, and may not run.
       (epc (ignore-errors (bench-connect-epc)))
       (params (list :calls bench-calls))
       ours theirs streams inserts)
  (duet-rpc-request "measure" params)
  (dotimes (round bench-rounds)
    (when (cl-evenp round) (push (duet-rpc-request "measure" params) ours))
    (when epc (push (bench-call-epc epc) theirs))
    (when (cl-oddp round) (push (duet-rpc-request "measure" params) ours)))
  (dotimes (_ (min 5 bench-rounds))
    (with-temp-buffer
      (buffer-enable-undo)
      (set-window-buffer nil (current-buffer))
      (push (bench-cpu-ms #'bench-stream) streams)
      (let ((text (buffer-string)))
        (erase-buffer)
        (push (bench-cpu-ms (lambda () (insert text))) inserts))))
  (princ (json-encode (list :emacs emacs-version
                            :ours (vconcat ours) :epc (vconcat (delq nil theirs))
                            :streams (vconcat streams) :inserts (vconcat inserts)))))

;;; acting.el ends here
