;;; background-tests.el --- Calls that run while Emacs goes on  -*- lexical-binding: t; -*-

;;; Commentary:

;; They are cancelled, waited for, and fail; and meanwhile methods are offered.

;;; Code:

(require 'duet-rpc-test-commands)


;;; Running in the background

(duet-rpc-define-command duet-rpc-test-never "never")
(duet-rpc-define-command duet-rpc-test-short-never "never" :timeout 0.3)

(ert-deftest duet-rpc-several-commands-run-and-each-can-be-cancelled ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (duet-rpc-test-never)
    (duet-rpc-call "never" nil)
    (duet-rpc-test-until duet-rpc--mode-line)
    (should (memq 'duet-rpc--mode-line global-mode-string))
    (should (string-match-p "\\[never 1 ahead 0s \\+1\\]" duet-rpc--mode-line))
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_ table &rest _)
                 (let ((all (all-completions "" table)))
                   (should (string-match-p "never, " (car all)))
                   (should (= 2 (length all)))
                   (cadr all)))))
      (should (equal "duet-rpc-test-never cancelled"
                     (duet-rpc-test-messages (call-interactively #'duet-rpc-cancel)))))
    (should (equal "never cancelled"
                   (duet-rpc-test-messages (call-interactively #'duet-rpc-cancel))))
    (should-error (call-interactively #'duet-rpc-cancel) :type 'user-error)
    (should-not duet-rpc--mode-line)
    (should-not (memq 'duet-rpc--mode-line global-mode-string))
    (should (= 2 (length (duet-rpc-test-seen "$/cancelRequest"))))))

(ert-deftest duet-rpc-quit-as-the-next-key-cancels ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (duet-rpc-test-never)
    (let ((command (key-binding (kbd "C-g"))))
      (should-not (eq command 'keyboard-quit))
      (should (equal "duet-rpc-test-never cancelled"
                     (duet-rpc-test-messages (call-interactively command)))))
    (should (eq 'keyboard-quit (key-binding (kbd "C-g"))))
    ;; After any other key it is an ordinary key again.
    (duet-rpc-test-never)
    (run-hooks 'pre-command-hook)
    (should (eq 'keyboard-quit (key-binding (kbd "C-g"))))
    (call-interactively #'duet-rpc-cancel)))

(ert-deftest duet-rpc-a-keyboard-macro-waits-for-its-commands ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (duet-rpc-test-returns "xyz")
    (insert "abc")
    (duet-rpc-test-typing "C-c w !" nil)
    (should (equal (buffer-string) "xyz!"))))

(ert-deftest duet-rpc-a-timeout-says-what-it-waited-for ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (duet-rpc-test-never)
    (should (string-match-p
             "duet-rpc-test-short-never: no answer within 0.3 s; \
duet-rpc-test-never has been running for [0-9] s in the same process"
             (duet-rpc-test-messages
               (duet-rpc-test-short-never)
               (duet-rpc-test-until (= 1 (length (duet-rpc--running-calls))))
               (accept-process-output nil 0.1))))
    (call-interactively #'duet-rpc-cancel)
    (let ((duet-rpc-timeout 0.2))
      (should (string-match-p "never: no answer within 0.2 s (the option `duet-rpc-timeout')"
                              (cadr (should-error (duet-rpc-request "never"))))))))

(ert-deftest duet-rpc-waiting-is-announced ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (duet-rpc-test-never)
    (should (equal "waiting for progress… (duet-rpc-test-never is running; C-g cancels)"
                   (duet-rpc-test-messages
                     (duet-rpc-request "progress" '( :steps 1 :pause 0.8
                                                     :_meta (:progressToken 0))))))
    (call-interactively #'duet-rpc-cancel)
    (should (equal "" (duet-rpc-test-messages
                        (duet-rpc-request "progress" '( :steps 1 :pause 0.2
                                                        :_meta (:progressToken 0))))))))

(ert-deftest duet-rpc-a-failed-command-says-so-in-the-echo-area ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (should (equal "fail: Internal error; M-x duet-rpc-show-log says where"
                   (duet-rpc-test-messages
                     (duet-rpc-call "fail" nil)
                     (duet-rpc-test-idle))))))

(ert-deftest duet-rpc-a-crash-shows-the-end-of-stderr-once ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (dotimes (_ 2)
      (let ((shown (duet-rpc-test-messages
                     (duet-rpc-call "exit" '(:code 3))
                     (duet-rpc-test-until (eq (duet-rpc-status) 'waiting))
                     (duet-rpc-test-idle))))
        (with-temp-buffer
          (insert shown)
          (should (= 1 (how-many "end of stderr: äöü" (point-min) (point-max)))))))))

(ert-deftest duet-rpc-a-crash-shows-nothing-of-earlier-calls ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "log" '(:text "about an earlier call"))
    (duet-rpc-test-until
     (string-search "an earlier call"
                    (with-current-buffer (duet-rpc--log-buffer (duet-rpc--server))
                      (buffer-string))))
    (let ((shown (duet-rpc-test-messages
                   (duet-rpc-call "exit" '(:code 3))
                   (duet-rpc-test-until (eq (duet-rpc-status) 'waiting))
                   (duet-rpc-test-idle))))
      (should (string-search "end of stderr: äöü" shown))
      (should-not (string-search "an earlier call" shown)))))

(ert-deftest duet-rpc-an-unknown-method-is-reported-at-once-while-another-runs ()
  (duet-rpc-test-with-fake
    (duet-rpc--methods)
    (let ((server (duet-rpc--server)))
      (duet-rpc-call "never" nil)
      (let ((count (length (duet-rpc-test-seen "rpc.discover"))))
        (should (string-match-p "upcas: Method not found.*did you mean upcase"
                                (duet-rpc-test-messages
                                  (duet-rpc-call "upcas" nil)
                                  (duet-rpc-test-until
                                   (= 1 (length (duet-rpc--running-calls))))
                                  (accept-process-output nil 0.1))))
        (should (= count (length (duet-rpc-test-seen "rpc.discover")))))
      (should (duet-rpc--busy-p server))
      (call-interactively #'duet-rpc-cancel))))

(ert-deftest duet-rpc-a-command-called-by-a-timer-leaves-quit-alone ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (run-with-timer 0 nil #'duet-rpc-test-never)
    (duet-rpc-test-until (duet-rpc--running-calls))
    (should (eq 'keyboard-quit (key-binding (kbd "C-g"))))
    (call-interactively #'duet-rpc-cancel)))

(ert-deftest duet-rpc-methods-are-offered-while-one-is-running ()
  (duet-rpc-test-with-fake
    (duet-rpc--methods)
    (duet-rpc-call "never" nil)
    (let ((count (length (duet-rpc-test-seen "rpc.discover"))))
      (should (duet-rpc--find-description "upcase"))
      (should (= count (length (duet-rpc-test-seen "rpc.discover")))))
    (call-interactively #'duet-rpc-cancel)))

(ert-deftest duet-rpc-methods-are-offered-while-the-first-one-is-running ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (duet-rpc-mode -1)
    (let ((duet-rpc--servers (make-hash-table :test #'equal)))
      (duet-rpc-mode 1)
      (duet-rpc-call "never" nil)
      (cl-letf (((symbol-function 'duet-rpc--request)
                 (lambda (&rest _) (ert-fail "Emacs would wait for the method"))))
        (should (duet-rpc--find-description "py.sort")))
      (call-interactively #'duet-rpc-cancel)
      (duet-rpc-test-refreshed)
      (duet-rpc-stop))))

(ert-deftest duet-rpc-built-in-methods-are-offered-when-one-is-typed ()
  (duet-rpc-test-with-pyz
    (let ((duet-rpc-arguments (list "rpc" "--methods" (expand-file-name
                                                       "methods.py" duet-rpc-test-directory)))
          (table nil))
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_ collection &rest _) (setq table collection) "version")))
        (should (equal "version" (plist-get (duet-rpc--read-method "Call: " (duet-rpc--methods))
                                            :name))))
      (should (member "forever" (all-completions "" table)))
      (should-not (member "version" (all-completions "" table)))
      (should (equal '("version") (all-completions "vers" table)))
      (should (test-completion "version" table)))))

(ert-deftest duet-rpc-ones-own-methods-come-first ()
  (duet-rpc-test-with-pyz
    (let ((duet-rpc-arguments (list "rpc" "--methods" (expand-file-name
                                                       "methods.py" duet-rpc-test-directory))))
      (cl-flet ((names (&optional own) (mapcar (lambda (each) (plist-get each :name))
                                               (duet-rpc--methods own))))
        (should (equal "forever" (car (names))))
        (should (member "version" (names)))
        (should-not (member "version" (names t)))
        (duet-rpc-list-methods)
        (should-not (string-match-p "version" (buffer-string)))
        (duet-rpc-list-methods t)
        (should (string-match-p "version" (buffer-string)))
        (kill-buffer)))))

(ert-deftest duet-rpc-object-keys-may-have-any-letters ()
  (duet-rpc-test-with-fake
    (let ((value '(:Ñandú (:é [(:日本 1 :a (:ü nil))]) :ascii "Ñ")))
      (should (equal value (duet-rpc-request "echo" value)))
      (should (equal '(:Ñ 1) (duet-rpc-request "raw" '(:json "{\"\\u00d1\": 1}")))))))

;;; background-tests.el ends here
