;;; asking-tests.el --- Methods that ask, act on Emacs, stream and push  -*- lexical-binding: t; -*-

;;; Commentary:

;; The real daemon with the methods in asking.py.  Batch Emacs has no
;; minibuffer, so the functions that read there are replaced;
;; test_terminal.py types at a real one.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-asking
  (let ((file (expand-file-name "asking.py" duet-rpc-test-directory)))
    (if (not (getenv "DUET_RPC_TEST_WORKER"))
        file
      (with-temp-file (expand-file-name "~/asking.py")
        (insert "# /// script\n# ///\n")
        (insert-file-contents file))
      (expand-file-name "~/asking.py")))
  "The file of methods; a worker runs it if the environment says so.")

(defmacro duet-rpc-test-with-asking (&rest body)
  "Run BODY with the real daemon and the methods in asking.py."
  (declare (indent 0) (debug t))
  `(let ((duet-rpc-arguments (list "rpc" "--methods" duet-rpc-test-asking))
         (duet-rpc--handlers (make-hash-table :test #'equal)))
     (save-window-excursion
       (duet-rpc-test-with-pyz ,@body))))

(defmacro duet-rpc-test-answering (function answer &rest body)
  "Run BODY while FUNCTION, which prompts, is replaced by ANSWER."
  (declare (indent 2) (debug t))
  `(cl-letf (((symbol-function ,function) ,answer))
     ,@body))


;;; Questions

(ert-deftest duet-rpc-method-asks ()
  (duet-rpc-test-with-asking
    (let (prompts)
      (duet-rpc-test-answering 'read-string
          (lambda (prompt _ _ default) (push prompt prompts) (or default "Ada"))
        (should (equal (duet-rpc-request "ask") "Ada"))
        (should (equal (duet-rpc-request "ask" '(:prompt "Rename to" :default "x")) "x"))
        (should (equal prompts '("Rename to (default x): " "Name? ")))))
    (duet-rpc-test-answering 'y-or-n-p #'always
      (should (eq t (duet-rpc-request "confirm"))))
    (duet-rpc-test-answering 'y-or-n-p #'ignore
      (should (eq :json-false (duet-rpc-request "confirm"))))))

(ert-deftest duet-rpc-method-offers-choices ()
  (duet-rpc-test-with-asking
    (duet-rpc-test-answering 'completing-read
        (lambda (_ table _ require &rest _)
          (should require)
          (should (equal (all-completions "" table) '("fig" "pear" "apple")))
          (should (string-match-p
                   "green" (funcall (alist-get 'annotation-function
                                               (cdr (funcall table "" nil 'metadata)))
                                    "pear")))
          "pear")
      (should (equal (duet-rpc-request "choose") "pear")))
    (duet-rpc-test-answering 'completing-read-multiple
        (lambda (&rest _) (list "apple" "fig" "apple"))
      (should (equal (duet-rpc-request "choose" '(:several t)) ["apple" "fig"])))))

(ert-deftest duet-rpc-secret-leaves-no-trace ()
  (let ((duet-rpc-events-size 100000))
    (duet-rpc-test-with-asking
      (duet-rpc-test-answering 'read-passwd (lambda (&rest _) (copy-sequence "hunter22"))
        (should (= 8 (duet-rpc-request "secret"))))
      (dolist (buffer (buffer-list))
        (with-current-buffer buffer
          (should-not (save-excursion (goto-char (point-min))
                                      (search-forward "hunter22" nil t)))))
      (should-not (member "hunter22" duet-rpc-answer-history)))))

(ert-deftest duet-rpc-quit-at-a-question-cancels-the-call ()
  (duet-rpc-test-with-asking
    (duet-rpc-test-answering 'read-string (lambda (&rest _) (signal 'quit nil))
      ;; Where Emacs waits, that is a quit.
      (should (eq 'quit (condition-case nil (duet-rpc-request "ask") (quit 'quit))))
      (should (eq 'quit (condition-case nil (duet-rpc-request "declined") (quit 'quit))))
      (let ((call (duet-rpc--async-request (duet-rpc--server) "ask" nil :label "ask"
                                           :success-fn #'ert-fail :error-fn #'ert-fail)))
        (should (string-match-p "ask cancelled"
                                (duet-rpc-test-messages
                                  (duet-rpc-test-until (duet-rpc--call-outcome call)))))
        (should (equal '(cancelled) (duet-rpc--call-outcome call)))))
    (should (= 4 (duet-rpc-request "double" '(:number 2))))))

(ert-deftest duet-rpc-question-of-a-dead-buffer-is-declined ()
  (duet-rpc-test-with-asking
    (duet-rpc-request "version")
    (let (call)
      (with-temp-buffer
        (setq call (duet-rpc--async-request (duet-rpc--server) "declined" nil
                                            :success-fn #'ignore)))
      (duet-rpc-test-until (equal '(result "declined") (duet-rpc--call-outcome call))))))

(ert-deftest duet-rpc-questions-queue ()
  (duet-rpc-test-with-asking
    (let ((open 0) (most 0) prompts)
      (duet-rpc-test-answering 'read-string
          (lambda (prompt &rest _)
            (setq open (1+ open) most (max most open))
            (push prompt prompts)
            (accept-process-output nil 0.3)
            (setq open (1- open))
            "x")
        (let ((server (duet-rpc--ensure-server)) (ends 0))
          (duet-rpc-request "version")
          ;; As if they came from different workers.
          (dotimes (number 3)
            (cl-letf (((symbol-function 'duet-rpc--send-reply)
                       (lambda (&rest _) (cl-incf ends))))
              (duet-rpc--receive-request
               nil (format "duet:x%d" number)
               (duet-rpc--make-incoming-request
                :server server :method 'client/ask :function #'duet-rpc--ask
                :params (list :prompt (format "%d" number))))
              (when (= number 2)
                (duet-rpc-test-until (= 3 ends)))))
          (should (= 1 most))
          (should (equal (reverse prompts) '("0: " "1: " "2: "))))))))

(ert-deftest duet-rpc-time-stands-still-at-a-question ()
  (duet-rpc-test-with-asking
    (duet-rpc-request "double" '(:number 1)) ; which starts it
    (duet-rpc-test-answering 'read-string
        (lambda (&rest _)
          (let ((end (+ 2 (float-time))))
            (while (< (float-time) end) (accept-process-output nil 0.05)))
          "late")
      (should (equal "late" (duet-rpc-request "ask" nil :timeout 1)))
      (let (got)
        (duet-rpc-async-request "ask" nil :timeout 1
                                :success-fn (lambda (result) (setq got result)))
        (duet-rpc-test-until got)
        (should (equal got "late"))))))

(ert-deftest duet-rpc-withdrawn-question-closes-its-prompt ()
  (duet-rpc-test-with-asking
    (let ((closed 0) (then #'ignore) call)
      (duet-rpc-test-answering 'read-string
          (lambda (&rest _)
            (run-with-timer 0.1 nil then)
            (unwind-protect (while t (accept-process-output nil 0.05))
              (cl-incf closed)))
        (setq then (lambda () (duet-rpc-cancel call))
              call (duet-rpc-async-request "ask" nil))
        (duet-rpc-test-until (= 1 closed))
        (setq then #'ignore)
        (should (equal "gave up" (duet-rpc-request "give_up")))
        (duet-rpc-test-until (= 2 closed))
        ;; The daemon exits.
        (setq then (lambda () (signal-process (duet-rpc-test-pid) 9)))
        (duet-rpc-async-request "ask" nil :error-fn #'ignore)
        (duet-rpc-test-until (= 3 closed))
        (should (= 0 (hash-table-count (duet-rpc--server-incoming (duet-rpc--server)))))))))

(ert-deftest duet-rpc-malformed-questions-are-declined ()
  (let ((server (duet-rpc--make-server :host "")))
    (pcase-dolist (`(,method . ,params)
                   '((client/choose :prompt "x") (client/choose :prompt "x" :choices [])
                     (client/choose :prompt "x" :choices [1 "a"]) (client/confirm)
                     (client/confirm :prompt 7) (client/ask :prompt "x" :default [1])))
      (should (= -32005 (plist-get (plist-get (duet-rpc--answer
                                               (duet-rpc--make-incoming-request
                                                :server server :method method :params params
                                                :function (cdr (assq method duet-rpc--questions)))
                                               nil)
                                              :error)
                                   :code))))))

(ert-deftest duet-rpc-question-that-fails-is-declined ()
  (duet-rpc-test-with-asking
    (duet-rpc-test-answering 'read-string (lambda (&rest _) (error "No minibuffer"))
      (should (equal "declined" (duet-rpc-request "declined"))))))


;;; Lisp for Python

(ert-deftest duet-rpc-method-calls-lisp ()
  (duet-rpc-test-with-asking
    (should (= 3 (duet-rpc-request "call" '(:function "+" :args [1 2]))))
    (should (equal (duet-rpc-request "call" '(:function "upcase" :args ["é"])) "É"))
    (with-temp-buffer
      (insert "one two")
      (goto-char 4)
      (text-mode)
      (should (equal (duet-rpc-request "evaluate" '(:text "(point) ; here\n(1+ (point))")) 5))
      (should (equal (duet-rpc-request "here")
                     (vector (buffer-name) "text-mode" 4 "one two")))
      (duet-rpc-request "call" '(:function "insert" :args ["!"]))
      (should (equal (buffer-string) "one! two")))
    (should (equal (duet-rpc-request "evaluate" '(:text "'(:a 1 :b [2 nil t])"))
                   '(:a 1 :b [2 nil t])))
    (should (equal (duet-rpc-request "evaluate" '(:text "(propertize \"x\" 'face 'bold)")) "x"))
    (should (equal (duet-rpc-request "handles") ["x" "duet-rpc-gone"]))
    (should (equal (duet-rpc-request "error" '(:text "(car 5)"))
                   ["wrong-type-argument" ["listp" 5]]))
    (should (equal (aref (duet-rpc-request "error" '(:text "(no-such-function)")) 0)
                   "void-function"))
    (should (equal (aref (duet-rpc-request "error" '(:text "(")) 0) "end-of-file"))))

(ert-deftest duet-rpc-values-survive-the-way-there-and-back ()
  (let ((server (duet-rpc--make-server :host "")))
    (pcase-dolist (`(,lisp ,json)
                   `((nil nil) (t t) (:json-false :json-false) (:null nil) (1.5 1.5)
                     (x (:lisp "symbol" :name "x")) (:x (:lisp "keyword" :name "x"))
                     ((a . 1) (:lisp "cons" :car (:lisp "symbol" :name "a") :cdr 1))
                     ((1 2) [1 2]) ([1 (2)] [1 [2]])
                     ((("a" . 1)) [(:lisp "cons" :car "a" :cdr 1)])
                     ((:lisp 1) (:lisp "plist" :members [["lisp" 1]]))))
      (should (equal (duet-rpc--encode server lisp) json)))
    (pcase-dolist (`(,json ,lisp)
                   '((:json-false nil) ([1 :json-false] [1 nil]) ((:a [t]) (:a [t]))
                     ((:lisp "symbol" :name "x") x) ((:lisp "keyword" :name "x") :x)
                     ((:lisp "list" :items [1 (:lisp "list" :items [])]) (1 nil))
                     ((:lisp "plist" :members [["lisp" 1]]) (:lisp 1))))
      (should (equal (duet-rpc--decode server json) lisp)))
    (let* ((table (make-hash-table :test #'equal)))
      (puthash "a" 1 table)
      (should (equal (duet-rpc--encode server table) '(:a 1))))
    ;; A handle is one and the same while it is held.
    (let* ((one (duet-rpc--encode server (current-buffer)))
           (other (duet-rpc--encode server (current-buffer)))
           (id (plist-get one :id)))
      (should (equal one other))
      (should (equal "buffer" (plist-get one :type)))
      (should (eq (current-buffer) (duet-rpc--decode server one)))
      (duet-rpc--release-handles server (list :release (vector id)))
      (should (eq (current-buffer) (duet-rpc--decode server one)))
      (duet-rpc--release-handles server (list :release (vector id id 7)))
      (should-error (duet-rpc--decode server one) :type 'duet-rpc-gone))
    (should-error (duet-rpc--decode server '(:lisp "odd")))))

(ert-deftest duet-rpc-handler-calls-methods-inside-the-wait ()
  (duet-rpc-test-with-asking
    (should (= 42 (duet-rpc-request
                   "evaluate" '(:text "(duet-rpc-request \"double\" '(:number 21))"))))
    ;; And once more, inside that.
    (should (= 8 (duet-rpc-request
                  "evaluate" '(:text "(duet-rpc-request \"evaluate\"
                     '(:text \"(duet-rpc-request \\\"double\\\" '(:number 4))\"))"))))
    ;; A question that is asked while another one is open and Emacs waits for its call.
    (let ((asked 0))
      (duet-rpc-test-answering 'read-string
          (lambda (&rest _)
            (if (= 1 (cl-incf asked)) (duet-rpc-request "ask") "inner"))
        (should (equal "inner" (duet-rpc-request "ask" nil :timeout 5)))))))

(ert-deftest duet-rpc-quit-in-lisp-cancels-the-call ()
  (duet-rpc-test-with-asking
    (should (eq 'quit (condition-case nil
                          (duet-rpc-request "evaluate" '(:text "(signal 'quit nil)"))
                        (quit 'quit))))
    ;; Even if it does not return at all.
    (should (eq 'out (catch 'out
                       (duet-rpc-request "evaluate" '(:text "(throw 'out 'out)")))))
    (should (= 4 (duet-rpc-request "double" '(:number 2))))))

(ert-deftest duet-rpc-other-hosts-do-not-run-lisp ()
  (let ((here (duet-rpc--make-server :host ""))
        (there (duet-rpc--make-server :host "/ssh:build:"))
        (request (lambda (server method)
                   (duet-rpc--answer
                    (duet-rpc--make-incoming-request
                     :server server :method method
                     :function (cdr (assq method duet-rpc--client-methods))
                     :params '(:text "(+ 1 2)" :prompt "x"))
                    nil))))
    (should (equal (funcall request here 'emacs/eval) '(:result 3)))
    (should (= -32004 (plist-get (plist-get (funcall request there 'emacs/eval) :error) :code)))
    (should-not (cl-find "emacs" (duet-rpc--abilities there) :test #'equal))
    (duet-rpc-test-answering 'y-or-n-p #'always
      (should (equal (funcall request there 'client/confirm) '(:result t))))
    (let ((duet-rpc-trusted-hosts '("/ssh:build:")))
      (should (equal (funcall request there 'emacs/eval) '(:result 3)))
      (should (cl-find "emacs" (duet-rpc--abilities there) :test #'equal)))))


;;; Streams

(defmacro duet-rpc-test-streaming (&rest body)
  "Run BODY with the commands in asking.py, in a buffer that is displayed."
  (declare (indent 0) (debug t))
  `(duet-rpc-test-with-asking
     (unwind-protect
         (progn
           (duet-rpc-mode 1)
           (duet-rpc-request "version")
           (duet-rpc-test-until (commandp 'py-stream))
           (with-temp-buffer
             (buffer-enable-undo)
             (set-window-buffer nil (current-buffer))
             ,@body))
       (duet-rpc-mode -1)
       (ignore-errors (delete-file (duet-rpc--commands-file))))))

(ert-deftest duet-rpc-stream-goes-into-the-buffer-as-it-comes ()
  (duet-rpc-test-streaming
    (insert "ab")
    (goto-char 2)
    (undo-boundary)
    (let (seen)
      (add-hook 'after-change-functions (lambda (&rest _) (push (buffer-string) seen)) nil t)
      (duet-rpc--run "py_stream" '(:text "") 'stream)
      (duet-rpc-test-idle)
      (should (equal (buffer-string) "a0 1 2 3 4 b"))
      (should (< 1 (length seen)))
      ;; Point was at the end, and follows it.
      (should (= (point) 12))
      (undo-boundary)
      (setq last-command nil)
      (undo)
      (should (equal (buffer-string) "ab")))))

(ert-deftest duet-rpc-stream-leaves-a-point-that-was-moved ()
  (duet-rpc-test-streaming
    (insert "ab")
    (duet-rpc--run "py_stream" '(:text "" :count 20) 'stream)
    (duet-rpc-test-until (string-match-p "0 " (buffer-string)))
    (goto-char 1)
    (insert ">")
    (duet-rpc-test-idle)
    (should (= (point) 2))
    (should (string-match-p "\\`>ab0 1 .*19 \\'" (buffer-string)))))

(ert-deftest duet-rpc-stream-ends-when-it-is-cancelled ()
  (duet-rpc-test-streaming
    (call-interactively 'py-forever)
    (duet-rpc-test-until (string-match-p "x" (buffer-string)))
    (call-interactively #'duet-rpc-cancel)
    (duet-rpc-test-idle)
    (should (= 4 (duet-rpc-request "double" '(:number 2))))
    (let ((size (buffer-size)))
      (accept-process-output nil 0.2)
      (should (= size (buffer-size))))))

(ert-deftest duet-rpc-stream-whose-buffer-is-gone-goes-elsewhere ()
  (duet-rpc-test-streaming
    (duet-rpc--run "py_stream" '(:text "" :count 20) 'stream)
    (duet-rpc-test-until (string-match-p "0 " (buffer-string)))
    (setq buffer-read-only t)
    (should (string-match-p "the result is in \\*duet-rpc result\\*"
                            (duet-rpc-test-messages (duet-rpc-test-idle))))
    (should (string-match-p "19 \\'" (duet-rpc-test-result)))
    (setq buffer-read-only nil)))

(ert-deftest duet-rpc-stream-is-shown-as-it-comes ()
  (duet-rpc-test-streaming
    (duet-rpc-call "lines" '(:count 4))
    (duet-rpc-test-idle)
    (should (equal (duet-rpc-test-result) "0\n1\n2\n3"))
    ;; Where Emacs waits, all of it is the result.
    (should (equal (duet-rpc-request "lines") [0 1 2]))
    (let (got)
      (duet-rpc-async-request "lines" nil :stream-fn (lambda (part) (push part got))
                              :success-fn (lambda (result) (push (list result) got)))
      (duet-rpc-test-until (equal '(nil) (car got)))
      (should (equal (apply #'vconcat (reverse (cdr got))) [0 1 2])))))

(ert-deftest duet-rpc-stream-of-a-megabyte-is-quick ()
  (duet-rpc-test-streaming
    (let* ((seconds (lambda (function)
                      (garbage-collect)
                      (let ((begin (float-time (get-internal-run-time))))
                        (funcall function)
                        (- (float-time (get-internal-run-time)) begin))))
           (text (make-string 1000000 ?x))
           (part (make-string 100 ?x))
           (once (funcall seconds (lambda () (insert text)))))
      (erase-buffer)
      ;; 10,000 parts; the daemon joins them, but need not.
      (should (< (funcall seconds
                          (lambda ()
                            (let ((target (duet-rpc--capture-target "large" 'stream)))
                              (dotimes (_ 10000) (duet-rpc--stream target nil part))
                              (duet-rpc--release-target target))))
                 (+ 1 (* 2 once))))
      (should (= 1000000 (buffer-size)))
      (erase-buffer)
      (should (< (funcall seconds
                          (lambda ()
                            (duet-rpc--run "large" '(:pieces 10000 :size 100) 'stream)
                            (duet-rpc-test-idle)))
                 (+ 1 (* 2 once))))
      (should (= 1000000 (buffer-size))))))


;;; Messages at any time

(ert-deftest duet-rpc-handler-gets-what-python-pushes ()
  (duet-rpc-test-with-asking
    (let (got)
      (duet-rpc-handle "build" (lambda (params) (push params got)))
      (duet-rpc-request "push" '(:topic "build" :value (:failed 3)))
      (duet-rpc-request "push" '(:topic "nobody" :value 1))
      (duet-rpc-test-until got)
      (should (equal got '((:failed 3))))
      (with-current-buffer (duet-rpc--log-buffer (duet-rpc--server))
        (should (string-match-p "nothing handles the topic nobody" (buffer-string)))))))

;;; asking-tests.el ends here
