;;; emacs.el --- Time synchronous calls  -*- lexical-binding: t; -*-

;;; Commentary:

;; Time 1,000 calls of a user's method with `duet-rpc-request', and the
;; same calls with `jsonrpc-request' to the leanest loop in Python.
;; Print the milliseconds of each round as JSON.  DUET_RPC_ELC names the
;; compiled library, BENCH_DUET and BENCH_LEAN are the two commands.

;;; Code:

(require 'json)
(require 'jsonrpc)
(load (getenv "DUET_RPC_ELC") nil t)

(defconst bench-calls 1000)
(defconst bench-rounds (string-to-number (getenv "BENCH_ROUNDS")))
(defconst bench-words ["count" "word" "text" "für" "東京" "def" "line\nbreak" "\"quoted\""])

(defun bench-command (variable)
  "Return the command in the environment's VARIABLE."
  (append (json-parse-string (getenv variable)) nil))

(defun bench-params ()
  "Return parameters of the method `count', different each time."
  (let (words)
    (dotimes (_ (+ 3 (random 57)))
      (push (aref bench-words (random (length bench-words))) words))
    (list :text (string-join words " ") :word (car words) :limit (1+ (random 1000)))))

(defun bench-lean ()
  "Return a function that calls the lean loop through jsonrpc.el alone."
  (let ((connection
         (apply #'make-instance 'jsonrpc-process-connection
                :name "lean"
                :process (lambda ()
                           (make-process
                            :name "lean" :noquery t :connection-type 'pipe
                            :coding 'utf-8-emacs-unix
                            :stderr (get-buffer-create "*lean stderr*")
                            :command (bench-command "BENCH_LEAN")))
                (if (slot-exists-p 'jsonrpc-connection '-events-buffer-config)
                    '(:events-buffer-config (:size 0 :format full))
                  '(:events-buffer-scrollback-size 0)))))
    (lambda (params) (jsonrpc-request connection 'count params :timeout 10))))

(defun bench-ms (function calls)
  "Return the milliseconds that FUNCTION takes for all CALLS."
  (garbage-collect)
  (let ((begin (float-time)))
    (mapc function calls)
    (* 1000 (- (float-time) begin))))

(random "bench")
(let* ((duet-rpc-program (bench-command "BENCH_DUET"))
       (ours (lambda (params) (duet-rpc-request "count" params)))
       (lean (bench-lean))
       our-times lean-times)
  (let ((params (bench-params)))
    (unless (equal (funcall ours params) (funcall lean params))
      (error "The two results differ")))
  (dotimes (round bench-rounds)
    (let (calls)
      (dotimes (_ bench-calls) (push (bench-params) calls))
      ;; In turns, so that a busy machine is unfair to neither.
      (when (cl-evenp round) (push (bench-ms ours calls) our-times))
      (push (bench-ms lean calls) lean-times)
      (when (cl-oddp round) (push (bench-ms ours calls) our-times))))
  (princ (json-encode (list :emacs emacs-version
                            :ours (vconcat our-times) :lean (vconcat lean-times)))))

;;; emacs.el ends here
