;;; methods-tests.el --- Methods in Python, called from Emacs  -*- lexical-binding: t; -*-

;;; Code:

(require 'duet-rpc-test-helpers)

(defmacro duet-rpc-test-with-methods (&rest body)
  "Run BODY with a daemon that has the test's methods and the examples."
  (declare (indent 0) (debug t))
  `(duet-rpc-test-with-pyz
     (let ((duet-rpc-arguments
            (list "rpc"
                  "--methods" (expand-file-name "methods.py" duet-rpc-test-directory)
                  "--methods" (expand-file-name "examples/sql.py" duet-rpc-test-top)
                  "--methods" (expand-file-name "examples/reformat.py" duet-rpc-test-top)
                  "--methods" (expand-file-name "examples/readability.py" duet-rpc-test-top))))
       ,@body)))

(defun duet-rpc-test-define-examples ()
  "Define commands that call some of the examples."
  (eval '(progn
           (duet-rpc-define-command my-json "reformat_json"
             :params (:text region) :result replace)
           (duet-rpc-define-command my-sql-tidy "reformat_sql"
             :params (:text region) :result replace)
           (duet-rpc-define-command my-readability "text.readability"
             :params (:text region) :result buffer))
        t))

(ert-deftest duet-rpc-quit-interrupts-a-busy-python-loop ()
  (duet-rpc-test-with-methods
    (duet-rpc-request "version")
    (let ((pid (duet-rpc-test-pid))
          (inhibit-quit nil))
      (dotimes (_ 3)
        (let ((timer (run-with-timer 0.4 nil (lambda () (setq quit-flag t)))))
          (should (eq 'quit (condition-case nil
                                (duet-rpc-request "forever")
                              (quit 'quit))))
          (cancel-timer timer))
        (should (stringp (plist-get (duet-rpc-request "version") :version))))
      (should (= pid (duet-rpc-test-pid))))))

(ert-deftest duet-rpc-progress-comes-from-python ()
  (duet-rpc-test-with-methods
    (let ((steps nil) (result nil))
      (duet-rpc-async-request "count.slowly" '(:to 5)
                              :progress-fn (lambda (value) (push (plist-get value :done) steps))
                              :success-fn (lambda (answer) (setq result answer)))
      (duet-rpc-test-until result)
      (should (= result 5))
      ;; Of reports in quick succession some are left out, but never the last.
      (should (= (car (last steps)) 1))
      (should (= (car steps) 5))
      (should (apply #'> steps)))))

(ert-deftest duet-rpc-errors-of-python-are-conditions ()
  (duet-rpc-test-with-methods
    (let ((err (should-error (duet-rpc-request "refuse" '(:why "tired")) :type 'duet-rpc-error)))
      (should (= -32001 (duet-rpc-error-code err)))
      (should (equal '(:why "tired") (duet-rpc-error-data err)))
      (should (string-match-p "No: tired" (error-message-string err))))
    (let ((err (should-error (duet-rpc-request "refuse" '(:why 3)) :type 'duet-rpc-error)))
      (should (= -32602 (duet-rpc-error-code err))))))

(ert-deftest duet-rpc-find-source-goes-to-the-line ()
  (duet-rpc-test-with-methods
    (save-window-excursion
      (duet-rpc-list-methods)
      (goto-char (point-min))
      (should (search-forward "count.slowly"))
      (duet-rpc-methods-find-source)
      (should (equal (file-name-nondirectory buffer-file-name) "methods.py"))
      (should (looking-at-p "@method(\"count.slowly\")"))
      (kill-buffer))))

(ert-deftest duet-rpc-examples-work-as-they-say ()
  (duet-rpc-test-define-examples)
  (duet-rpc-test-with-methods
    (with-temp-buffer
      (transient-mark-mode 1)
      (insert "{\"a\":[1,2]}")
      (push-mark (point-min) t t)
      (call-interactively 'my-json)
      (duet-rpc-test-idle)
      (should (equal (buffer-string) "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n"))
      (erase-buffer)
      (insert "select a from t")
      (push-mark (point-min) t t)
      (call-interactively 'my-sql-tidy)
      (duet-rpc-test-idle)
      (should (equal (buffer-string) "SELECT a\nFROM t\n"))
      (erase-buffer)
      (insert "One two. Three!")
      (push-mark (point-min) t t)
      (save-window-excursion
        (call-interactively 'my-readability)
        (duet-rpc-test-idle)
        (with-current-buffer "*duet-rpc result*"
          (should (string-match-p "\"words\": 3" (buffer-string))))))))

(ert-deftest duet-rpc-lisp-of-the-manual-is-true ()
  (let ((file (expand-file-name "~/.config/duet-rpc/methods/words.py"))
        (config (expand-file-name "~/.config/duet-rpc/config.toml"))
        (duet-rpc--handlers (make-hash-table :test #'equal)))
    (make-directory (file-name-directory file) t)
    ;; Backends with the names that the manual uses.
    (write-region (concat (duet-rpc-test-backend "time" "lines" "mcp")
                          (duet-rpc-test-backend "py" "content-length"))
                  nil config nil 'silent)
    (unwind-protect
        (duet-rpc-test-with-pyz
          (write-region (duet-rpc-test-page "first-steps.md" "python")
                        nil file nil 'silent)
          (let ((shown
                 (duet-rpc-test-messages
                   (with-temp-buffer
                     (emacs-lisp-mode) ; for its comments
                     (insert (duet-rpc-test-page "emacs.md" "elisp"))
                     (goto-char (point-min))
                     (while (progn (forward-comment (point-max)) (not (eobp)))
                       (let ((form (read (current-buffer))))
                         (duet-rpc-test-until (and (= 0 (duet-rpc-test-pending))
                                                   (null duet-rpc--queue)))
                         (unless (equal form '(duet-rpc-notify "shutdown"))
                           (eval form t)))))
                   (with-temp-buffer
                     (insert "to be or not to be")
                     (call-interactively 'my-top-words)
                     (duet-rpc-test-idle)))))
            (should (string-match-p "setLogLevel: Invalid params: level: expected one of debug"
                                    shown))
            (should (string-match-p "^{\"to\":2,\"be\":2,\"or\":1}$" shown)))
          (duet-rpc-test-until
           (cl-find "initialized" (duet-rpc-request "py/seen")
                    :test #'equal :key (lambda (each) (plist-get each :method))))
          (should (string-prefix-p
                   "file:///" (plist-get (aref (plist-get (funcall (gethash "time/roots/list"
                                                                            duet-rpc--handlers)
                                                                   nil)
                                                          :roots)
                                               0)
                                         :uri)))
          (should (commandp 'my-time-here)))
      (delete-file config)
      (delete-file file))))

(provide 'methods-tests)
;;; methods-tests.el ends here
