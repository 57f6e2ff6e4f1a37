;;; calling-tests.el --- Requests and their outcomes  -*- lexical-binding: t; -*-

;;; Code:

(require 'duet-rpc-test-helpers)

(ert-deftest duet-rpc-request-returns-the-result ()
  (duet-rpc-test-with-pyz
    (should (equal (duet-rpc-request "version")
                   (list :version duet-rpc--version)))
    (should (equal (duet-rpc-request 'setLogLevel '(:level "WARN"))
                   '(:level "warn" :success t)))
    (should (equal (duet-rpc-request "setLogLevel" ["info"])
                   '(:level "info" :success t)))))

(ert-deftest duet-rpc-request-signals-a-readable-error ()
  (duet-rpc-test-with-pyz
    (let ((err (should-error (duet-rpc-request "setLogLevel" '(:level "loud"))
                             :type 'duet-rpc-error)))
      (should (equal (duet-rpc-error-code err) -32602))
      (should (equal (plist-get (duet-rpc-error-data err) :param) "level"))
      (should (string-prefix-p
               "duet-rpc: \"setLogLevel: Invalid params" (error-message-string err)))
      (should (string-match-p "expected one of debug, info, warn, error, received loud"
                              (error-message-string err)))
      ;; It is said only once.
      (should-not (string-match-p "expected.*expected" (cadr err))))
    (let ((err (should-error (duet-rpc-request "noSuchMethod") :type 'jsonrpc-error)))
      (should (equal (duet-rpc-error-code err) -32601))
      (should-not (duet-rpc-error-data err)))))

(ert-deftest duet-rpc-request-leaves-out-nil-params ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (should (eq :json-false
                (plist-get (car (duet-rpc-test-seen "echo")) :hasParams)))))

(ert-deftest duet-rpc-request-times-out-and-drops-the-late-answer ()
  (duet-rpc-test-with-fake
    (let ((shown
           (duet-rpc-test-messages
             (let ((err (should-error (duet-rpc-request "late" nil :timeout 0.3)
                                      :type 'duet-rpc-timeout)))
               (should (string-match-p "late: no answer within 0.3 s" (cadr err))))
             (should (= 0 (duet-rpc-test-pending)))
             ;; The cancel makes the server send the late answer.
             (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest"))))
             (should (equal (duet-rpc-request "upcase" '(:text "a")) "A")))))
      (should (equal shown "")))))

(ert-deftest duet-rpc-timeout-mentions-an-error-with-id-null ()
  (duet-rpc-test-with-fake
    (cl-flet ((text (method)
                (cadr (should-error (duet-rpc-request method nil :timeout 0.5)
                                    :type 'duet-rpc-timeout))))
      (should (equal (text "complain")
                     (concat "complain: no answer within 0.5 s; meanwhile the server \
reported: Parse error: no JSON")))
      ;; An error that belongs to another call is not mentioned.
      (should-error (duet-rpc-request "noSuchMethod"))
      (should (equal (text "never") "never: no answer within 0.5 s")))))

(ert-deftest duet-rpc-request-that-is-too-large-fails-at-once ()
  (duet-rpc-test-with-pyz
    (duet-rpc-request "version")
    (let ((err (should-error (duet-rpc-request
                              "version" (list :text (make-string 11000000 ?x))
                              :timeout 60)
                             :type 'duet-rpc-error)))
      (should (equal (duet-rpc-error-code err) -32600))
      (should (string-match-p "version: .*10485760" (cadr err))))
    (should (duet-rpc-request "version"))))

(ert-deftest duet-rpc-request-is-cancelled-by-quit ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let ((inhibit-quit nil))
      (should (eq 'quit (duet-rpc-test-quitting 0.3 (duet-rpc-request "never")))))
    (should (= 0 (duet-rpc-test-pending)))
    (should (= 1 (length (duet-rpc-test-seen "never"))))
    (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest"))))))

(ert-deftest duet-rpc-request-is-cancelled-by-quit-where-quitting-is-inhibited ()
  ;; As in timers and process filters; Emacs must not hang there either.
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let (timer callback filter local)
      (run-with-timer 0.1 nil
                      (lambda ()
                        (setq timer (duet-rpc-test-quitting 0.3
                                      (duet-rpc-request "never")))))
      (duet-rpc-test-until timer)
      (duet-rpc-async-request
       "echo" nil
       :success-fn (lambda (_)
                     (setq callback (duet-rpc-test-quitting 0.3
                                      (duet-rpc-request "never")))))
      (duet-rpc-test-until callback)
      (make-process :name "other" :command '("echo" "x") :noquery t
                    :filter (lambda (&rest _)
                              (setq filter (duet-rpc-test-quitting 0.3
                                             (duet-rpc-request "never")))))
      (duet-rpc-test-until filter)
      (let ((inhibit-quit t))
        (setq local (list (with-local-quit
                            (run-with-timer 0.3 nil (lambda () (setq quit-flag t)))
                            (duet-rpc-request "never"))
                          quit-flag))
        (setq quit-flag nil))
      (should (equal (list timer callback filter local) '(quit quit quit (nil t)))))
    (should (= 4 (length (duet-rpc-test-seen "$/cancelRequest"))))
    (should (= 0 (duet-rpc-test-pending)))))

(ert-deftest duet-rpc-request-works-where-quitting-is-inhibited ()
  (duet-rpc-test-with-fake
    (let (got)
      (run-with-timer 0 nil (lambda () (push (duet-rpc-request "upcase" '(:text "t")) got)))
      (make-process :name "other" :command '("echo" "x") :noquery t
                    :filter (lambda (&rest _)
                              (push (duet-rpc-request "upcase" '(:text "f")) got)))
      (let ((inhibit-quit t))
        (push (duet-rpc-request "upcase" '(:text "i")) got))
      (duet-rpc-test-until (= 3 (length got)))
      (should (equal (sort got #'string<) '("F" "I" "T"))))))

(ert-deftest duet-rpc-request-is-cancelled-by-input ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    ;; What Emacs does inside `while-no-input' when a key is typed.
    (run-with-timer 0.3 nil (lambda () (setq quit-flag throw-on-input)))
    (should (eq t (while-no-input (duet-rpc-request "never"))))
    (should (= 0 (duet-rpc-test-pending)))
    (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest"))))))

(ert-deftest duet-rpc-request-is-cancelled-by-quitting-twice ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let ((again (lambda (&rest _) (setq quit-flag t)))
          (inhibit-quit t))
      (advice-add 'jsonrpc-notify :before again)
      (unwind-protect
          (should (eq 'quit (duet-rpc-test-quitting 0.3 (duet-rpc-request "never"))))
        (advice-remove 'jsonrpc-notify again))
      (should quit-flag)
      (setq quit-flag nil))
    (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest"))))
    (should (= 0 (duet-rpc-test-pending)))))

(defconst duet-rpc-test-slow-fake
  (list "sh" "-c" (concat "sleep 1; exec "
                          (mapconcat #'shell-quote-argument duet-rpc-test-fake " ")))
  "A server that reads nothing for a while.")

(ert-deftest duet-rpc-request-is-cancelled-by-quit-before-it-is-sent ()
  (duet-rpc-test-with duet-rpc-test-slow-fake
    (should (eq 'quit (duet-rpc-test-quitting 0.3
                        (duet-rpc-request "size" (list :text (make-string 300000 ?x))))))
    ;; The rest of the request is sent, or the server would lose the frame.
    (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))
    (should (= 1 (length (duet-rpc-test-seen "size"))))
    (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest"))))
    (should (= 0 (duet-rpc-test-pending)))))

(ert-deftest duet-rpc-notify-works-while-a-request-is-being-sent ()
  (duet-rpc-test-with duet-rpc-test-slow-fake
    (run-with-timer 0.3 nil (lambda () (duet-rpc-notify "hello")))
    (let ((call (duet-rpc-async-request "never" (list :text (make-string 300000 ?x)))))
      ;; It can be cancelled, and an exit would finish it.
      (should (duet-rpc--call-id call))
      (should (= 1 (length (duet-rpc-test-seen "hello"))))
      (should (= 1 (duet-rpc-test-pending)))
      (duet-rpc-cancel call)
      (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest")))))))

(ert-deftest duet-rpc-request-refuses-what-is-not-json ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let ((err (should-error (duet-rpc-request "echo" '(:text "\xff"))
                             :type 'duet-rpc-error)))
      (should (string-match-p "echo: cannot be sent" (cadr err))))
    (should (= 0 (duet-rpc-test-pending)))
    (should (equal (duet-rpc-request "echo" '(:text "é")) '(:text "é")))))

(ert-deftest duet-rpc-async-request-calls-back-in-the-callers-buffer ()
  (duet-rpc-test-with-pyz
    (with-temp-buffer
      (let ((buffer (current-buffer)) got)
        (duet-rpc-async-request
         "version" nil
         :success-fn (lambda (result) (push (list (current-buffer) result) got))
         :error-fn #'ert-fail)
        (with-temp-buffer
          (duet-rpc-test-until got))
        (should (equal got (list (list buffer (list :version duet-rpc--version)))))))))

(ert-deftest duet-rpc-async-request-is-dropped-with-its-buffer ()
  (duet-rpc-test-with-pyz
    (let (called other)
      (with-temp-buffer
        (duet-rpc-async-request "version" nil
                                :success-fn (lambda (_) (setq called t))))
      (duet-rpc-async-request "version" nil
                              :success-fn (lambda (_) (setq other t)))
      (duet-rpc-test-until other)
      (should-not called))))

(ert-deftest duet-rpc-async-request-reports-errors-and-timeouts ()
  (duet-rpc-test-with-fake
    (let (err timeout)
      (duet-rpc-async-request "noSuchMethod" nil :success-fn #'ert-fail
                              :error-fn (lambda (e) (push e err)))
      (duet-rpc-async-request "never" nil :success-fn #'ert-fail :timeout 0.2
                              :timeout-fn (lambda () (push t timeout)))
      (duet-rpc-test-until (and err timeout))
      (should (equal (plist-get (car err) :code) -32601))
      (should (= 1 (length err) (length timeout)))
      (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest"))))
      (should (string-match-p
               "duet-rpc: noSuchMethod: Method not found"
               (duet-rpc-test-messages
                 (duet-rpc-async-request "noSuchMethod" nil)
                 (duet-rpc-test-until (= 0 (duet-rpc-test-pending)))
                 (accept-process-output nil 0.05)))))))

(ert-deftest duet-rpc-async-request-takes-a-reply-read-late ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let (got)
      (duet-rpc-async-request "upcase" '(:text "a") :timeout 0.5
                              :timeout-fn (lambda () (push 'timeout got))
                              :success-fn (lambda (text) (push text got)))
      ;; Nothing is read meanwhile, and no timer runs.
      (let ((end (+ (float-time) 1)))
        (while (< (float-time) end)))
      (timer-event-handler (cdr (duet-rpc--server-deadline-timer (duet-rpc--server))))
      (duet-rpc-test-until got)
      (should (equal got '("A")))
      ;; Output without end must not postpone a timeout for ever.
      (setq got nil)
      (duet-rpc-async-request "never" nil :timeout 0.5
                              :timeout-fn (lambda () (push 'timeout got)))
      (duet-rpc-async-request "progress" '(:steps 20 :pause 0.1)
                              :progress-fn (lambda (_) (push 'progress got)))
      (duet-rpc-test-until (memq 'timeout got))
      (duet-rpc-test-until (= 0 (duet-rpc-test-pending))))))

(ert-deftest duet-rpc-async-request-can-wait-in-its-callback ()
  (duet-rpc-test-with-fake
    (let (got)
      (dotimes (i 3)
        (duet-rpc-async-request
         "echo" (list :n i)
         :success-fn
         (lambda (result)
           (push (list (plist-get result :n)
                       (duet-rpc-request "upcase" '(:text "x")))
                 got))))
      (duet-rpc-test-until (= 3 (length got)))
      (should (equal (sort (mapcar #'car got) #'<) '(0 1 2))))))

(ert-deftest duet-rpc-async-request-survives-a-failing-callback ()
  (duet-rpc-test-with-pyz
    (let* ((debug-on-error nil)
           (shown (duet-rpc-test-messages
                    (duet-rpc-async-request "version" nil
                                            :success-fn (lambda (_) (error "Oops")))
                    (duet-rpc-test-until (= 0 (duet-rpc-test-pending)))
                    (accept-process-output nil 0.05))))
      (should (string-match-p "callback of version failed: Oops" shown))
      (should (duet-rpc-request "version")))))

(ert-deftest duet-rpc-async-request-keeps-the-order ()
  (duet-rpc-test-with-fake
    (let (got)
      (dotimes (i 200)
        (duet-rpc-async-request "echo" (list :n i)
                                :success-fn (lambda (r) (push (plist-get r :n) got))))
      (duet-rpc-test-until (= 200 (length got)))
      (should (equal (nreverse got) (number-sequence 0 199))))))

(ert-deftest duet-rpc-cancel-ends-a-call-silently ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let ((call (duet-rpc-async-request "never" nil :success-fn #'ert-fail
                                        :error-fn #'ert-fail)))
      (duet-rpc-cancel call)
      (duet-rpc-cancel call)
      (should (= 0 (duet-rpc-test-pending)))
      (should (= 1 (length (duet-rpc-test-seen "$/cancelRequest")))))))

(ert-deftest duet-rpc-notify-expects-nothing ()
  (duet-rpc-test-with-fake
    (duet-rpc-notify "hello" '(:a 1))
    (should (= 1 (length (duet-rpc-test-seen "hello"))))
    (should (= 0 (duet-rpc-test-pending)))))

(ert-deftest duet-rpc-progress-arrives-before-the-result ()
  (duet-rpc-test-with-fake
    (let (got)
      (duet-rpc-async-request
       "progress" '(:steps 3)
       :progress-fn (lambda (value) (push (plist-get value :done) got))
       :success-fn (lambda (result) (push result got)))
      (duet-rpc-test-until (member "done" got))
      (should (equal (nreverse got) '(1 2 3 "done"))))))

(ert-deftest duet-rpc-progress-does-not-come-after-the-result ()
  ;; It would replace the result in the echo area.
  (duet-rpc-test-with-fake
    (let* ((done nil) (late nil)
           (server (duet-rpc--ensure-server)))
      (dotimes (_ 5)
        (setq done nil)
        (duet-rpc--request server "progress" '(:steps 20)
                           :progress-fn (lambda (_) (when done (setq late t))))
        (setq done t)
        (accept-process-output nil 0.1))
      (should-not late))))

(ert-deftest duet-rpc-progress-extends-the-timeout ()
  (duet-rpc-test-with-fake
    (should (equal "done" (duet-rpc--request (duet-rpc--ensure-server) "progress"
                                             '(:steps 6 :pause 0.2)
                                             :timeout 0.6 :progress-fn #'ignore)))
    (let (got)
      (duet-rpc-async-request "progress" '(:steps 6 :pause 0.2)
                              :timeout 0.6 :progress-fn #'ignore
                              :timeout-fn (lambda () (setq got "timeout"))
                              :success-fn (lambda (result) (setq got result)))
      (duet-rpc-test-until got)
      (should (equal got "done")))))

(ert-deftest duet-rpc-answers-1000-calls ()
  (duet-rpc-test-with-pyz
    (dotimes (_ 1000)
      (should (duet-rpc-request "version")))
    (let ((got 0))
      (dotimes (_ 1000)
        (duet-rpc-async-request "version" nil :success-fn (lambda (_) (cl-incf got))))
      (duet-rpc-test-until (= got 1000) 20))))

(ert-deftest duet-rpc-carries-5-megabytes-both-ways ()
  (duet-rpc-test-with-pyz
    (let ((err (should-error (duet-rpc-request
                              "setLogLevel" (list :level (make-string 5000000 ?x))))))
      (should (equal -32602 (duet-rpc-error-code err)))))
  (duet-rpc-test-with-fake
    (should (= 2500000 (duet-rpc-request
                        "size" (list :text (make-string 2500000 ?é)))))
    (should (equal (make-string 2500000 ?é)
                   (duet-rpc-request "big" '(:bytes 5000000))))))

(ert-deftest duet-rpc-distinguishes-all-json-values ()
  (duet-rpc-test-with-fake
    (let ((all (list :null nil :false :json-false :true t :none [] :zero 0 :float 0.5
                     :big most-positive-fixnum :empty "" :text "é\u2028\U0001F600\r\n"
                     :nested [nil [(:a [])]])))
      (should (equal (duet-rpc-request "echo" all) all))
      (should (equal (plist-get (duet-rpc-request
                                 "echo" (list :object (make-hash-table)))
                                :object)
                     nil))
      (should (string-match-p "{\"object\": {}"
                              (plist-get (cadr (duet-rpc-test-seen "echo")) :raw))))
    (should (equal (duet-rpc-request "nothing") nil))))

(ert-deftest duet-rpc-reads-json-that-emacs-refuses ()
  (duet-rpc-test-with-fake
    (dolist (pair `(("1180591620717411303424" . ,(expt 2 70))
                    ("\"a\\u0000b\"" . "a\0b")
                    ("{\"\\u0000\": [null, false, {}]}" . (,(intern ":\0") [nil :json-false nil]))
                    ("\"\\ud800\"" . ,(string #xd800))))
      (should (equal (duet-rpc-request "raw" (list :json (car pair))) (cdr pair)))
      (duet-rpc-test-call "raw" (list :json (car pair)))
      (duet-rpc-test-call "raw" (list :json (car pair)) 'message))
    (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))))

(ert-deftest duet-rpc-ignores-default-coding-systems ()
  (dolist (coding '(utf-8-dos latin-1-dos latin-1-mac))
    (let ((default-process-coding-system (cons coding coding))
          (coding-system-for-read nil)
          (coding-system-for-write nil))
      (duet-rpc-test-with-fake
        (should (equal (duet-rpc-request "echo" '(:text "naïve 日本\r\n"))
                       '(:text "naïve 日本\r\n")))))))

;;; calling-tests.el ends here
