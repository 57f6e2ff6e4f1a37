;;; connection-tests.el --- Finding, starting and restarting the server  -*- lexical-binding: t; -*-

;;; Code:

(require 'duet-rpc-test-helpers)

(defun duet-rpc-test-library (directory)
  "Copy the library to DIRECTORY and return the copy."
  (make-directory directory t)
  (let ((copy (expand-file-name "duet-rpc.el" directory)))
    (copy-file (getenv "DUET_RPC_EL") copy)
    copy))

(defmacro duet-rpc-test-in-directory (variable &rest body)
  "Run BODY with VARIABLE bound to a fresh directory."
  (declare (indent 1) (debug t))
  `(let ((,variable (file-name-as-directory
                     (file-truename (make-temp-file "duet-rpc" t)))))
     (unwind-protect (progn ,@body)
       (delete-directory ,variable t))))

(ert-deftest duet-rpc-finds-the-program-beside-the-library ()
  (duet-rpc-test-in-directory dir
    (let ((duet-rpc--file (duet-rpc-test-library dir))
          (pyz (concat dir "duet-rpc.pyz")))
      (copy-file duet-rpc-test-pyz pyz)
      (should (equal (duet-rpc--command (duet-rpc--server)) `("python3" ,pyz "rpc" "--debug")))
      (let ((duet-rpc--file (concat dir "duet-rpc.elc"))
            (duet-rpc-python "/usr/bin/python3")
            (duet-rpc-arguments '("rpc" "--log-level" "debug")))
        (should (equal (duet-rpc--command (duet-rpc--server))
                       `("/usr/bin/python3" ,pyz "rpc" "--log-level" "debug" "--debug")))))))

(ert-deftest duet-rpc-finds-the-program-behind-a-link ()
  (duet-rpc-test-in-directory dir
    (duet-rpc-test-library (concat dir "repo"))
    (copy-file duet-rpc-test-pyz (concat dir "repo/duet-rpc.pyz"))
    (make-directory (concat dir "build"))
    (make-symbolic-link (concat dir "repo/duet-rpc.el") (concat dir "build/duet-rpc.el"))
    (let ((duet-rpc--file (concat dir "build/duet-rpc.elc")))
      (should (equal (nth 1 (duet-rpc--command (duet-rpc--server)))
                     (concat dir "repo/duet-rpc.pyz"))))))

(ert-deftest duet-rpc-finds-the-program-on-the-path ()
  (duet-rpc-test-in-directory dir
    (let ((duet-rpc--file (duet-rpc-test-library dir))
          (exec-path (list (concat dir "bin")))
          (script (concat dir "bin/duet-rpc")))
      (make-directory (concat dir "bin"))
      (write-region "#!/bin/sh\n" nil script nil 'silent)
      (set-file-modes script #o755)
      (should (equal (duet-rpc--command (duet-rpc--server)) `(,script "rpc" "--debug"))))))

(ert-deftest duet-rpc-prefers-the-option ()
  (let ((duet-rpc-program duet-rpc-test-pyz))
    (should (equal (nth 1 (duet-rpc--command (duet-rpc--server))) duet-rpc-test-pyz)))
  (let ((duet-rpc-program '("a" "whole" "command")))
    (should (equal (duet-rpc--command (duet-rpc--server)) '("a" "whole" "command"))))
  (let* ((duet-rpc-program "/nowhere/duet-rpc.pyz")
         (err (should-error (duet-rpc-request "version") :type 'duet-rpc-error)))
    (should (string-match-p "/nowhere/duet-rpc.pyz (the option `duet-rpc-program')"
                            (cadr err)))))

(ert-deftest duet-rpc-says-where-it-looked ()
  (duet-rpc-test-in-directory dir
    (duet-rpc-test-library (concat dir "repo"))
    (make-symbolic-link (concat dir "repo/duet-rpc.el") (concat dir "duet-rpc.el"))
    (let* ((duet-rpc--file (concat dir "duet-rpc.el"))
           (exec-path '("/nowhere/bin"))
           (text (cadr (should-error (duet-rpc-request "version")
                                     :type 'duet-rpc-error))))
      (dolist (part (list (concat dir "duet-rpc.pyz") (concat dir "repo/duet-rpc.pyz")
                          "/nowhere/bin" "M-x duet-rpc-install installs it"))
        (should (string-match-p (regexp-quote part) text)))
      ;; Interactively, the message is the text and nothing else.
      (should (equal (list 'user-error text)
                     (should-error (duet-rpc-call "version" nil)))))))

(ert-deftest duet-rpc-says-when-python-is-missing ()
  (duet-rpc-test-with-pyz
    (let* ((duet-rpc-python "no-such-python")
           (err (should-error (duet-rpc-request "version") :type 'duet-rpc-error)))
      (should (string-match-p "Cannot start no-such-python" (cadr err)))
      (should (string-match-p "`duet-rpc-python'" (cadr err))))
    (should (duet-rpc-request "version"))))

(ert-deftest duet-rpc-says-when-python-is-too-old ()
  (duet-rpc-test-with '("sh" "-c" "echo 'duet-rpc: this Python is too old: 2.7.18. \
Put Python 3.9 or later in front: python3.12 duet-rpc.pyz' >&2; exit 1")
    (should (string-match-p
             "duet-rpc needs a newer Python (see `duet-rpc-python'); restarting in 1 s"
             (duet-rpc-test-messages
               (should-error (duet-rpc-request "version") :type 'duet-rpc-error))))))

(ert-deftest duet-rpc-names-the-option-that-is-wrong ()
  (pcase-dolist (`(,option ,value ,what)
                 `((duet-rpc-python nil "a string")
                   (duet-rpc-program 7 "nil, a string or a list of strings")
                   (duet-rpc-arguments "rpc" "a list of strings")
                   (duet-rpc-directory t "nil or a string")
                   (duet-rpc-timeout "30" "a number")
                   (duet-rpc-events-size nil "a number")))
    (let ((text (format "The option `%s' is %S; it must be %s" option value what)))
      (ert-info (text)
        (duet-rpc-test-with-pyz
          (cl-progv (list option) (list value)
            (should (equal (should-error (duet-rpc-request "version"))
                           (list 'duet-rpc-error text)))
            (save-window-excursion
              (duet-rpc-doctor)
              (should (string-search (concat "✗ options      " text) (buffer-string)))
              (should-not (string-match-p "^…" (buffer-string)))))))))
  (duet-rpc-test-with-pyz
    (duet-rpc-request "version")
    (let ((duet-rpc-timeout nil))
      (should (string-match-p "`duet-rpc-timeout' is nil"
                              (cadr (should-error (duet-rpc-request "version")
                                                  :type 'duet-rpc-error))))
      (should (duet-rpc-request "version" nil :timeout 10))
      (duet-rpc-stop)))
  (let* ((duet-rpc-program (directory-file-name temporary-file-directory)))
    (should (string-match-p "Cannot find the program.*\n.*`duet-rpc-program'"
                            (cadr (should-error (duet-rpc-request "version")
                                                :type 'duet-rpc-error))))))

(ert-deftest duet-rpc-starts-in-a-neutral-directory ()
  (skip-unless (file-directory-p "/proc/self"))
  (cl-flet ((directory ()
              (file-truename (format "/proc/%d/cwd" (duet-rpc-test-pid)))))
    (let ((default-directory duet-rpc-test-directory))
      (duet-rpc-test-with-pyz
        (duet-rpc-request "version")
        (should (file-equal-p (directory) "~")))
      (duet-rpc-test-with-pyz
        (let ((duet-rpc-directory "/usr"))
          (duet-rpc-request "version")
          (should (equal (directory) "/usr")))))))

(ert-deftest duet-rpc-starts-stops-and-restarts ()
  (duet-rpc-test-with-pyz
    (should (eq (duet-rpc-status) 'stopped))
    (duet-rpc-restart)
    (should (eq (duet-rpc-status) 'starting))
    (duet-rpc-test-until (eq (duet-rpc-status) 'ready))
    (let ((pid (duet-rpc-test-pid)))
      (duet-rpc-restart)
      (duet-rpc-request "version")
      (should-not (= pid (duet-rpc-test-pid)))
      (should-not (file-exists-p (format "/proc/%d" pid))))
    (duet-rpc-stop)
    (should (eq (duet-rpc-status) 'stopped))
    (duet-rpc-stop)
    (should (duet-rpc-request "version"))))

(ert-deftest duet-rpc-stop-ends-pending-calls-quickly ()
  (duet-rpc-test-with-fake
    (let (ended (begin (float-time)))
      (duet-rpc-async-request "never" nil :error-fn (lambda (err) (push err ended)))
      (duet-rpc-stop)
      (should (< (- (float-time) begin) 1))
      (duet-rpc-test-until ended)
      (should (string-match-p "stopped" (plist-get (car ended) :message)))
      (should (= 1 (length ended))))))

(ert-deftest duet-rpc-leaves-no-buffers ()
  (duet-rpc-test-with-pyz
    (duet-rpc-request "version"))
  (should-not (cl-find-if (lambda (buffer)
                            (string-match-p "duet-rpc.*\\(output\\|stderr\\)"
                                            (buffer-name buffer)))
                          (buffer-list))))

(ert-deftest duet-rpc-exit-finishes-50-calls-once-each ()
  (duet-rpc-test-with-fake
    (let ((ends (make-vector 50 0)) texts)
      (duet-rpc-request "echo")
      (dotimes (i 50)
        (duet-rpc-async-request
         "never" nil
         :success-fn (lambda (_) (cl-incf (aref ends i)))
         :timeout-fn (lambda () (cl-incf (aref ends i)))
         :error-fn (lambda (err)
                     (cl-incf (aref ends i))
                     (push (plist-get err :message) texts))))
      ;; A synchronous call fails with them.
      (let ((err (should-error (duet-rpc-request "exit" '(:code 3))
                               :type 'duet-rpc-error)))
        (should (string-match-p "exited with code 3" (cadr err)))
        (should (string-match-p "end of stderr: äöü" (cadr err)))
        (should (string-match-p "duet-rpc-show-log" (cadr err))))
      (duet-rpc-test-until (= 50 (length texts)))
      (accept-process-output nil 0.2)
      (should (equal ends (make-vector 50 1)))
      (should (= 0 (duet-rpc-test-pending)))
      (should (eq (duet-rpc-status) 'waiting)))))

(ert-deftest duet-rpc-starts-again-after-a-crash ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let ((pid (duet-rpc-test-pid)))
      (should (string-match-p
               "duet-rpc was killed by signal 9; restarting in 1 s"
               (duet-rpc-test-messages
                 (signal-process pid 9)
                 (duet-rpc-test-until (eq (duet-rpc-status) 'waiting)))))
      (duet-rpc-test-until (eq (duet-rpc-status) 'ready))
      (should-not (= pid (duet-rpc-test-pid))))))

(ert-deftest duet-rpc-gives-up-after-quick-exits ()
  (duet-rpc-test-with '("sh" "-c" "echo no good >&2; exit 7")
    (dotimes (_ duet-rpc--max-quick-exits)
      (should-error (duet-rpc-request "version") :type 'duet-rpc-error))
    (should (eq (duet-rpc-status) 'failed))
    (let ((text (cadr (should-error (duet-rpc-request "version")
                                    :type 'duet-rpc-error))))
      (should (string-match-p "\\(exited with code 7\\|closed its input\\), 5 times in a row" text))
      (should (string-match-p "M-x duet-rpc-restart" text))
      (should (string-match-p "no good" text)))
    (let ((duet-rpc-program duet-rpc-test-fake))
      (duet-rpc-restart)
      (should (equal "A" (duet-rpc-request "upcase" '(:text "a")))))))

(ert-deftest duet-rpc-exit-does-not-make-it-ready ()
  (duet-rpc-test-with '("false")
    (let (states)
      (cl-letf* ((real (symbol-function 'duet-rpc--set-state))
                 ((symbol-function 'duet-rpc--set-state)
                  (lambda (server state)
                    (push state states)
                    (funcall real server state))))
        (ignore-errors (duet-rpc-request "version")))
      (should (equal states '(waiting starting))))))

(ert-deftest duet-rpc-waits-longer-after-each-quick-exit ()
  (duet-rpc-test-with '("false")
    (let ((shown (duet-rpc-test-messages
                   (dotimes (_ 3)
                     (ignore-errors (duet-rpc-request "version"))))))
      (should (string-match-p "in 1 s\\(.\\|\n\\)*in 2 s\\(.\\|\n\\)*in 4 s" shown))
      (should (eq (duet-rpc-status) 'waiting)))))

(ert-deftest duet-rpc-status-is-true ()
  (cl-flet ((reason () (duet-rpc--server-reason (duet-rpc--server)))
            (crash ()
              (duet-rpc-request "echo")
              (signal-process (duet-rpc-test-pid) 9)
              (duet-rpc-test-until (eq (duet-rpc-status) 'waiting))))
    (duet-rpc-test-with-fake
      (crash)
      (should (string-match-p "restarting in 1 s" (reason)))
      (duet-rpc-stop)
      (should-not (reason))
      (should (eq (duet-rpc-status) 'stopped))
      (crash)
      ;; The restart is no longer scheduled.
      (let ((duet-rpc-program "/nowhere/duet-rpc.pyz"))
        (should-error (duet-rpc-request "echo") :type 'duet-rpc-error))
      (should-not (reason))
      (should (eq (duet-rpc-status) 'stopped)))))

(ert-deftest duet-rpc-does-not-restart-after-a-clean-exit ()
  (duet-rpc-test-with-pyz
    (duet-rpc-request "shutdown")
    (duet-rpc-test-until (eq (duet-rpc-status) 'stopped))
    (should-not (duet-rpc--server-restart-timer (duet-rpc--server)))
    (should (duet-rpc-request "version"))))

(ert-deftest duet-rpc-starts-again-right-after-a-shutdown ()
  (duet-rpc-test-with-pyz
    (dotimes (_ 5)
      (duet-rpc-request "shutdown")
      (should (duet-rpc-request "version")))
    (should (eq (duet-rpc-status) 'ready))))

(ert-deftest duet-rpc-refuses-another-protocol ()
  (with-environment-variables (("FAKE_PROTOCOL" "3.0"))
    (duet-rpc-test-with-fake
      (let ((text (cadr (should-error (duet-rpc-request "echo")
                                      :type 'duet-rpc-error))))
        (should (string-match-p "protocol 3.0.*speaks 2.0.*M-x duet-rpc-install" text)))
      (should (eq (duet-rpc-status) 'failed)))))

(ert-deftest duet-rpc-warns-about-another-version ()
  (with-environment-variables (("FAKE_VERSION" "0.9.3"))
    (duet-rpc-test-with-fake
      (let (warning)
        (cl-letf (((symbol-function 'display-warning)
                   (lambda (_ text &rest _) (setq warning text))))
          (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))
          (duet-rpc-test-until warning))
        (should (string-match-p "version 0.9.3.*M-x duet-rpc-install" warning))))))

(ert-deftest duet-rpc-skips-stray-output-on-stdout ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (dolist (bytes '(10 60 79 80 95 101 150 5000 200000))
      (should (equal "after the junk" (duet-rpc-request "junk" (list :bytes bytes))))
      (should (equal "A" (duet-rpc-request "upcase" '(:text "a")))))
    (duet-rpc-restart)
    ;; It may also say that it waits for the server to start.
    (let ((shown (duet-rpc-test-messages (duet-rpc-request "junk" '(:bytes 150)))))
      (should (string-match-p "skipped 150 stray bytes .*: \"JJJJ.*M-x duet-rpc-show-log"
                              shown))
      (should (< (length shown) 300)))
    ;; There is one message for each process; the log has the rest.
    (should (equal "" (duet-rpc-test-messages (duet-rpc-request "junk" '(:bytes 151)))))
    (with-current-buffer (duet-rpc--log-buffer (duet-rpc--server))
      (should (string-match-p "151 stray bytes" (buffer-string))))))

(ert-deftest duet-rpc-reports-unread-bytes-at-a-timeout ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let ((text (cadr (should-error (duet-rpc-request "half" nil :timeout 1.5)
                                    :type 'duet-rpc-timeout))))
      (should (string-match-p "half: no answer within 1.5 s" text))
      (should (string-match-p "skipped [0-9]+ stray bytes .*: .*half" text)))
    (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))
    ;; Replies behind half a frame are read in the end.
    (let (got)
      (duet-rpc-async-request "half" nil :timeout 0.5 :timeout-fn #'ignore)
      (duet-rpc-async-request "upcase" '(:text "b") :success-fn (lambda (r) (push r got)))
      (duet-rpc-test-until got)
      (should (equal got '("B"))))))

(ert-deftest duet-rpc-survives-odd-messages ()
  (duet-rpc-test-with-fake
    (should (equal "after all" (duet-rpc-request "odd")))
    (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))))

(ert-deftest duet-rpc-bounds-its-log ()
  (duet-rpc-test-with-fake
    (let ((server (duet-rpc--server)))
      (dotimes (_ 50)
        (duet-rpc--append-log server (concat (make-string 9999 ?x) "\n")))
      (should (< (buffer-size (duet-rpc--log-buffer server)) 210000)))))

(ert-deftest duet-rpc-finds-a-bare-name-on-the-path ()
  (duet-rpc-test-in-directory dir
    (let ((duet-rpc-program "my-duet")
          (exec-path (list dir))
          (script (concat dir "my-duet")))
      (let ((text (cadr (should-error (duet-rpc-request "version")
                                      :type 'duet-rpc-error))))
        (should (string-match-p "my-duet (the option `duet-rpc-program'" text))
        (should (string-match-p (regexp-quote dir) text)))
      (write-region "#!/bin/sh\n" nil script nil 'silent)
      (set-file-modes script #o755)
      (should (equal (duet-rpc--command (duet-rpc--server)) `(,script "rpc" "--debug"))))))

(ert-deftest duet-rpc-says-when-its-directory-is-missing ()
  (duet-rpc-test-with-pyz
    (let* ((duet-rpc-directory "/nowhere/at/all")
           (err (should-error (duet-rpc-request "version") :type 'duet-rpc-error)))
      (should (string-match-p "/nowhere/at/all.*`duet-rpc-directory'" (cadr err))))))

(ert-deftest duet-rpc-starts-from-a-deleted-directory ()
  (let* ((gone (file-name-as-directory (make-temp-file "duet-rpc" t)))
         (default-directory gone))
    (delete-directory gone)
    (duet-rpc-test-with-pyz
      (should (duet-rpc-request "version"))
      (save-window-excursion
        (duet-rpc-doctor)
        (duet-rpc-test-until (string-match-p "daemon +ready.* answers after [0-9.]+ ms" (buffer-string)))))))

(ert-deftest duet-rpc-takes-no-environment-from-a-buffer ()
  (skip-unless (file-directory-p "/proc/self"))
  (duet-rpc-test-with-pyz
    (with-temp-buffer
      (setq-local process-environment (cons "OF_THIS_BUFFER=1" process-environment)
                  exec-path '("/nowhere"))
      (duet-rpc-request "version")
      (let ((environment (format "/proc/%d/environ" (duet-rpc-test-pid))))
        (with-temp-buffer
          (insert-file-contents-literally environment)
          (should (search-forward "HOME=" nil t))
          (goto-char (point-min))
          (should-not (search-forward "OF_THIS_BUFFER" nil t)))))))

(ert-deftest duet-rpc-keeps-events-only-when-asked ()
  (duet-rpc-test-with-pyz
    (duet-rpc-request "listMethods")
    (should-not (string-match-p "listMethods"
                                (with-current-buffer
                                    (get-buffer-create "*duet-rpc events*")
                                  (buffer-string)))))
  (duet-rpc-test-with-pyz
    (let ((duet-rpc-events-size 100000))
      (duet-rpc-request "listMethods"))
    (with-current-buffer "*duet-rpc events*"
      (should (string-match-p "listMethods" (buffer-string))))))

(ert-deftest duet-rpc-stop-does-not-wait-for-a-stuck-daemon ()
  (duet-rpc-test-with '("sleep" "30")
    ;; More than the pipe holds, so that nothing more can be sent.
    (should (eq 'quit (duet-rpc-test-quitting 0.3
                        (duet-rpc-request "x" (list :text (make-string 500000 ?x))))))
    (let ((begin (float-time)))
      (duet-rpc-stop)
      (should (< (- (float-time) begin) 5)))))

(ert-deftest duet-rpc-exit-is-noticed-without-a-log ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (kill-buffer "*duet-rpc log*")
    (let (ended)
      (duet-rpc-async-request "never" nil :error-fn (lambda (err) (push err ended)))
      (should (string-match-p
               "exited with code 3"
               (cadr (should-error (duet-rpc-request "exit" '(:code 3))
                                   :type 'duet-rpc-error))))
      (duet-rpc-test-until ended)
      (should (eq (duet-rpc-status) 'waiting)))))

(ert-deftest duet-rpc-exit-is-noticed-while-its-children-run ()
  (duet-rpc-test-with '("sh" "-c" "(timeout 12 yes >&2) & sleep 0.3; exit 3")
    (let ((begin (float-time)))
      (should (string-match-p
               "exited with code 3"
               (cadr (should-error (duet-rpc-request "version") :type 'duet-rpc-error))))
      (should (< (- (float-time) begin) 6)))))

(ert-deftest duet-rpc-survives-the-killing-of-its-buffers ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (let ((buffer (current-buffer)) ended)
        (duet-rpc-request "echo")
        (kill-buffer (jsonrpc-stderr-buffer
                      (duet-rpc--server-connection (duet-rpc--server))))
        (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))
        (duet-rpc-async-request "never" nil :error-fn (lambda (err) (push err ended)))
        (kill-buffer (process-buffer (duet-rpc--server-process (duet-rpc--server))))
        (duet-rpc-test-until ended)
        (should (buffer-live-p buffer))
        (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))))))

(ert-deftest duet-rpc-start-may-be-quit-at-any-moment ()
  ;; Quit in each of the functions that a start calls.
  (dolist (place '(make-process jsonrpc-stderr-buffer duet-rpc--redirect-stderr duet-rpc--log
                                duet-rpc--set-state jsonrpc-async-request))
    (ert-info ((format "quit in %s" place))
      (duet-rpc-test-with-fake
        (let ((quit (lambda (function &rest args)
                      (prog1 (apply function args)
                        (setq quit-flag t)))))
          (advice-add place :around quit)
          (unwind-protect
              (should (eq 'quit (condition-case nil
                                    (let ((inhibit-quit nil))
                                      (duet-rpc-request "never"))
                                  (quit 'quit))))
            (advice-remove place quit)))
        (should (eq (duet-rpc-status) 'starting))
        (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))
        (should (eq (duet-rpc-status) 'ready))
        (should (= 1 (cl-count "\\`duet-rpc\\(<[0-9]+>\\)?\\'" (process-list)
                               :test #'string-match-p :key #'process-name)))))))

(ert-deftest duet-rpc-exit-is-handled-before-a-timer-restarts ()
  ;; A child holds stderr open, so the sentinel waits for the end of stderr.
  (duet-rpc-test-with (list "sh" "-c"
                            (concat "sleep 8 & exec "
                                    (mapconcat #'shell-quote-argument
                                               duet-rpc-test-fake " ")))
    (duet-rpc-request "echo")
    (let* (got
           (lost nil)
           (first (duet-rpc--server-process (duet-rpc--server)))
           (timer (run-with-timer
                   0 0.05
                   (lambda ()
                     (unless (or got (process-live-p first))
                       (duet-rpc-async-request
                        "upcase" '(:text "a")
                        :success-fn (lambda (result) (push result got))
                        :error-fn (lambda (err) (push err lost))))))))
      (unwind-protect
          (progn
            (duet-rpc-async-request "never" nil :error-fn (lambda (err) (push err lost)))
            (signal-process first 9)
            (duet-rpc-test-until got))
        (cancel-timer timer))
      (duet-rpc-test-until (= 0 (duet-rpc-test-pending)))
      ;; The first process lost one call, the second none.
      (should (= 1 (length lost)))
      (should (eq (duet-rpc-status) 'ready)))))

;;; connection-tests.el ends here
