;;; author-tests.el --- What the author of a method sees  -*- lexical-binding: t; -*-

;;; Commentary:

;; The server is the fake one, which replies as the daemon does with
;; --debug.  author-daemon-tests.el has the same with the real daemon.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-fake-file (cadr duet-rpc-test-fake)
  "The fake server as a program, which Python runs.")

(defmacro duet-rpc-test-with-file (variable text &rest body)
  "Run BODY with VARIABLE bound to a Python file that contains TEXT.
Kill the buffers that visit files, and the traceback, afterwards."
  (declare (indent 2) (debug t))
  `(let* ((directory (make-temp-file "duet-rpc with space" t))
          (,variable (expand-file-name "words.py" directory))
          (next-error-last-buffer nil))
     (write-region ,text nil ,variable nil 'silent)
     (unwind-protect (save-window-excursion ,@body)
       (dolist (buffer (buffer-list))
         (when (or (member (buffer-name buffer)
                           '("*duet-rpc traceback*" "*duet-rpc problems*"))
                   (equal (buffer-file-name buffer) duet-rpc-test-fake-file)
                   (string-prefix-p directory (or (buffer-file-name buffer) "")))
           (with-current-buffer buffer (set-buffer-modified-p nil))
           (kill-buffer buffer)))
       (delete-directory directory t))))

(defun duet-rpc-test-traceback ()
  "Return the text of the traceback buffer."
  (with-current-buffer "*duet-rpc traceback*" (buffer-string)))

(defun duet-rpc-test-at (file line)
  "Fail unless LINE of FILE has been visited, in the selected window."
  (with-current-buffer (window-buffer)
    (should (equal buffer-file-name file))
    (should (= line (line-number-at-pos (window-point))))))

(defconst duet-rpc-test-chain
  (concat "def look():\n    return {}['x']\n"
          "def word_count():\n"
          "    try:\n        look()\n"
          "    except KeyError as error:\n        raise ValueError('no\\nsuch word') from error\n"
          "word_count()\n")
  "A program with an exception that has a cause.")


;;; Starting with --debug

(ert-deftest duet-rpc-starts-the-daemon-with-debug ()
  (duet-rpc-test-with duet-rpc-test-fake-file
    (should (equal (duet-rpc-request "arguments") ["rpc" "--debug"])))
  (let ((duet-rpc-arguments '("rpc" "--debug" "--methods" "x")))
    (duet-rpc-test-with duet-rpc-test-fake-file
      (should (equal (duet-rpc-request "arguments") ["rpc" "--debug" "--methods" "x"]))))
  (let ((duet-rpc-debug nil))
    (duet-rpc-test-with duet-rpc-test-fake-file
      (should (equal (duet-rpc-request "arguments") ["rpc"])))))

(ert-deftest duet-rpc-adds-debug-to-nobody-elses-arguments ()
  (let ((duet-rpc-arguments '("--stdio")))
    (duet-rpc-test-with duet-rpc-test-fake-file
      (should (equal (duet-rpc-request "arguments") ["--stdio"]))))
  (duet-rpc-test-with-fake
    (should (equal (duet-rpc-request "arguments") []))))

(ert-deftest duet-rpc-debug-must-be-valid ()
  (let ((duet-rpc-debug 'sometimes))
    (duet-rpc-test-with duet-rpc-test-fake-file
      (should (string-match-p "`duet-rpc-debug' is sometimes"
                              (cadr (should-error (duet-rpc-request "echo")
                                                  :type 'duet-rpc-error)))))))

(ert-deftest duet-rpc-says-when-the-program-is-too-old-for-debug ()
  (duet-rpc-test-with '("sh" "-c" "echo \"duet-rpc: unknown option '--debug'\" >&2; exit 2")
    (should (string-match-p "older than duet-rpc.el; M-x duet-rpc-install"
                            (cadr (should-error (duet-rpc-request "version")
                                                :type 'duet-rpc-error))))))


;;; Failed methods

(ert-deftest duet-rpc-a-failed-method-says-why-and-where ()
  (duet-rpc-test-with-file file "\n{}['x']\n"
    (duet-rpc-test-with-fake
      (let ((err (should-error (duet-rpc-request "run" (list :file file))
                               :type 'jsonrpc-error)))
        (should (equal (cadr err) "run: KeyError: 'x' (words.py:2)"))
        (should (= -32603 (duet-rpc-error-code err)))
        (should (equal (duet-rpc-error-data err)
                       (list :type "KeyError" :text "'x'" :place (concat file ":2"))))
        ;; It remains readable for a program that shows it all.
        (should-not (string-match-p "\n" (error-message-string err)))))))

(ert-deftest duet-rpc-a-command-says-how-to-see-the-traceback ()
  (duet-rpc-test-with-file file "\n{}['x']\n"
    (duet-rpc-test-with-fake
      (should (string-match-p
               (concat "\\`run: KeyError: 'x' (words.py:2); .* visits the line, "
                       "M-x duet-rpc-show-traceback shows more\\'")
               (cadr (should-error (duet-rpc-test-call "run" (list :file file))
                                   :type 'user-error)))))))

(ert-deftest duet-rpc-only-the-first-line-of-an-exception-is-in-the-message ()
  (dolist (case `(("raise ValueError('one\\ntwo')" . "run: ValueError: one (words.py:1)")
                  ("raise ValueError" . "run: ValueError (words.py:1)")
                  ("raise ValueError('x' * 1000)"
                   . ,(concat "run: ValueError: " (make-string 197 ?x) "... (words.py:1)"))))
    (duet-rpc-test-with-file file (car case)
      (duet-rpc-test-with-fake
        (should (equal (cdr case)
                       (cadr (should-error (duet-rpc-request "run" (list :file file))
                                           :type 'duet-rpc-error))))))))

(ert-deftest duet-rpc-next-error-begins-with-the-place ()
  (duet-rpc-test-with-file file duet-rpc-test-chain
    (duet-rpc-test-with-fake
      (should-error (duet-rpc-test-call "run" (list :file file)) :type 'user-error)
      ;; Nothing is popped up.
      (should-not (get-buffer-window "*duet-rpc traceback*" t))
      (next-error)
      (duet-rpc-test-at file 7)
      ;; Then the frames, those of the cause first.
      (should (equal (cl-loop for times from 0
                              while (ignore-errors (next-error) t)
                              do (should (< times 20))
                              when (equal (buffer-file-name (window-buffer)) file)
                              collect (with-current-buffer (window-buffer)
                                        (line-number-at-pos (window-point))))
                     '(5 2 8 7)))
      (previous-error)
      (duet-rpc-test-at file 8))))

(ert-deftest duet-rpc-traceback-has-links ()
  (duet-rpc-test-with-file file duet-rpc-test-chain
    (duet-rpc-test-with-fake
      (should-error (duet-rpc-request "run" (list :file file)))
      (duet-rpc-show-traceback)
      (should (derived-mode-p 'duet-rpc-traceback-mode 'compilation-mode))
      (should (string-prefix-p (format "run failed\n\n%s:7: ValueError: no\n\nTraceback" file)
                               (buffer-string)))
      (should (string-match-p "direct cause of the following exception" (buffer-string)))
      (should (string-suffix-p "ValueError: no\nsuch word\n" (buffer-string)))
      (goto-char (point-min))
      (search-forward "in look")
      (beginning-of-line)
      (call-interactively (key-binding (kbd "RET")))
      (duet-rpc-test-at file 2)
      ;; A compilation is not started here.
      (set-buffer "*duet-rpc traceback*")
      (should (eq (key-binding "g") 'duet-rpc-call-again)))))

(ert-deftest duet-rpc-syntax-errors-have-links ()
  (duet-rpc-test-with-file file "x = 1\ndef broken(:\n"
    (duet-rpc-test-with-fake
      (should (string-prefix-p "run: SyntaxError: "
                               (cadr (should-error (duet-rpc-request "run" (list :file file))))))
      (next-error)
      (duet-rpc-test-at file 2))))

(ert-deftest duet-rpc-the-next-traceback-replaces-the-last ()
  (duet-rpc-test-with-file file "{}['x']\n"
    (duet-rpc-test-with-fake
      (should-error (duet-rpc-request "run" (list :file file)))
      (duet-rpc-show-traceback)
      (next-error)
      (write-region "\n\n[][1]\n" nil file nil 'silent)
      (should-error (duet-rpc-request "run" (list :file file)))
      (should-not (string-match-p "KeyError" (duet-rpc-test-traceback)))
      (with-current-buffer (find-file-noselect file t) (revert-buffer t t))
      (next-error)
      (duet-rpc-test-at file 3))))

(ert-deftest duet-rpc-next-error-uses-what-came-last ()
  (duet-rpc-test-with-file file "\n\n{}['x']\n"
    (with-environment-variables (("FAKE_PROBLEMS" "words.py:2: SyntaxError: no"))
      (duet-rpc-test-with-fake
        (switch-to-buffer (find-file-noselect file))
        (should-error (duet-rpc-test-call "word_count" nil) :type 'user-error)
        (next-error)
        (duet-rpc-test-at file 2)
        (should-error (duet-rpc-test-call "run" (list :file file)) :type 'user-error)
        (next-error)
        (duet-rpc-test-at file 3)
        (should-error (duet-rpc-test-call "word_count" nil) :type 'user-error)
        (next-error)
        (duet-rpc-test-at file 2)))))

(ert-deftest duet-rpc-an-asynchronous-failure-is-shown-and-kept ()
  (duet-rpc-test-with-file file "{}['x']\n"
    (duet-rpc-test-with-fake
      (should (string-match-p
               "duet-rpc: run: KeyError: 'x' (words.py:1)"
               (duet-rpc-test-messages
                 (duet-rpc-async-request "run" (list :file file))
                 (duet-rpc-test-until (get-buffer "*duet-rpc traceback*"))
                 (accept-process-output nil 0.1))))
      (next-error)
      (duet-rpc-test-at file 1))))

(ert-deftest duet-rpc-next-error-is-left-alone-if-the-caller-handles-errors ()
  (duet-rpc-test-with-file file "{}['x']\n"
    (duet-rpc-test-with-fake
      (let ((data nil))
        (duet-rpc-async-request "run" (list :file file)
                                :error-fn (lambda (err) (setq data (plist-get err :data))))
        (duet-rpc-test-until data)
        (should (string-prefix-p "Traceback" (plist-get data :traceback)))
        (should-not next-error-last-buffer)
        (should (string-match-p "KeyError" (duet-rpc-test-traceback)))))))

(ert-deftest duet-rpc-without-debug-the-log-is-named ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (should (equal (should-error (duet-rpc-test-call "fail" nil))
                   '(user-error "fail: Internal error; M-x duet-rpc-show-log says where")))
    (should-not (get-buffer "*duet-rpc traceback*"))
    (should-error (duet-rpc-show-traceback) :type 'user-error)
    (let ((duet-rpc-debug nil))
      (should (string-match-p "duet-rpc-debug. is nil"
                              (cadr (should-error (duet-rpc-show-traceback))))))))


;;; A method that does not exist

(ert-deftest duet-rpc-an-unknown-method-is-explained ()
  (duet-rpc-test-with-fake
    (cl-flet ((text (method)
                (cadr (should-error (duet-rpc-test-call method nil) :type 'user-error))))
      (should (equal (text "upcsae") "upcsae: Method not found; did you mean upcase?"))
      (should (equal (text "UPCASE") "UPCASE: Method not found; did you mean upcase?"))
      (should (equal (text "word_count")
                     "word_count: Method not found; is its file in \
~/.config/duet-rpc/methods/? (M-x duet-rpc-load-file loads any other file, \
M-x duet-rpc-list-methods lists all methods)"))
      ;; A method of another server has no file here.
      (should (equal (text "time/now") "time/now: Method not found"))
      (with-environment-variables (("XDG_CONFIG_HOME" "/some/where"))
        (should (string-match-p "in /some/where/duet-rpc/methods/\\?" (text "word_count")))))
    ;; A program gets the short form, without another request.
    (should (equal (cadr (should-error (duet-rpc-request "upcsae")))
                   "upcsae: Method not found"))))

(ert-deftest duet-rpc-a-file-that-does-not-load-is-named ()
  (duet-rpc-test-with-file file "\ndef broken(:\n"
    (with-environment-variables (("FAKE_PROBLEMS" "words.py:2: SyntaxError: no"))
      (duet-rpc-test-with-fake
        (find-file-noselect file)
        (should (equal (cadr (should-error (duet-rpc-test-call "word_count" nil)))
                       "word_count: Method not found; a file could not be loaded: \
words.py:2: SyntaxError: no; M-g n visits the line"))
        (next-error)
        (duet-rpc-test-at file 2)))))

(ert-deftest duet-rpc-an-unsaved-file-is-the-first-suspect ()
  (let ((folder (expand-file-name "~/.config/duet-rpc/methods/")))
    (make-directory folder t)
    (with-current-buffer (find-file-noselect (expand-file-name "mine.py" folder))
      (insert "x")
      (unwind-protect
          (duet-rpc-test-with-fake
            (should (equal (cadr (should-error (duet-rpc-test-call "mine" nil)))
                           "mine: Method not found; save mine.py first")))
        (set-buffer-modified-p nil)
        (kill-buffer)
        (delete-directory folder t)))))


;;; What the daemon says

(ert-deftest duet-rpc-what-a-method-says-is-shown ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (should (equal "first line"
                   (duet-rpc-test-messages-for 0.2
                     (duet-rpc-request "say" '(:text "first line\nsecond line")))))
    (with-current-buffer "*duet-rpc log*"
      (should (string-match-p "first line\nsecond line" (buffer-string))))))

(ert-deftest duet-rpc-an-error-that-is-said-comes-after-the-result ()
  (duet-rpc-test-with-file file "def broken(:\n"
    (duet-rpc-test-with-fake
      (let* ((problem "words.py:1: SyntaxError: invalid syntax; the methods it had are kept")
             (shown (duet-rpc-test-messages-for 0.5
                      (find-file-noselect file) ; it is in no folder of methods
                      (duet-rpc-test-call "say" (list :text problem :level "error") 'message)))
             (lines (split-string shown "\n")))
        (should (member "after the text" lines))
        (should (member problem (member "after the text" lines)))
        (should (eq 'error (get-text-property (string-search problem shown) 'face shown))))
      (next-error)
      (duet-rpc-test-at file 1))))

(ert-deftest duet-rpc-an-error-that-is-shown-already-is-not-repeated ()
  (let ((shown "word_count: words.py:1: SyntaxError: no"))
    (cl-letf (((symbol-function 'current-message) (lambda () shown)))
      (should (equal "" (duet-rpc-test-messages-for 0.2
                          (duet-rpc--show-after-result "words.py:1: SyntaxError: no")))))))

(ert-deftest duet-rpc-an-error-that-is-said-stays-beside-a-failure ()
  (duet-rpc-test-with-file file "\n{}['x']\n"
    (duet-rpc-test-with-fake
      (let* ((current nil)
             (shown
              (cl-letf (((symbol-function 'current-message) (lambda () current))
                        ((symbol-function 'message)
                         (lambda (&rest args) (setq current (apply #'format args)))))
                (duet-rpc--show-after-result "words.py:1: SyntaxError: no")
                (duet-rpc-test-until current)
                (duet-rpc-call "run" (list :file file))
                (duet-rpc-test-idle)
                current)))
        (should (string-match-p "\\`run: KeyError: .*\nwords\\.py:1: SyntaxError: no\\'"
                                shown))))))

(ert-deftest duet-rpc-next-error-visits-the-line-of-a-missing-module ()
  (duet-rpc-test-with-file file "\nimport pandas\n"
    (duet-rpc-test-with-fake
      (find-file-noselect file)
      (duet-rpc-test-messages-for 0.5
        (duet-rpc-request "say" '(:text "words.py:2 imports 'pandas', which is not installed"
                                  :level "error")))
      (next-error)
      (duet-rpc-test-at file 2))))

(ert-deftest duet-rpc-what-is-said-takes-one-line ()
  (duet-rpc-test-with-fake
    (dolist (level '("info" "warn" "error"))
      (let ((shown (duet-rpc-test-messages-for 0.5
                     (duet-rpc-request "say" (list :text (make-string 5000 ?x)
                                                   :level level)))))
        (should (string-match-p "xxx\\.\\.\\.$" shown))
        (should (= 400 (length shown)))))
    (kill-buffer "*duet-rpc problems*")))

(ert-deftest duet-rpc-the-command-at-the-end-of-what-is-said-is-shown ()
  (let ((text (format "words.py:2 imports 'pandas', which is not installed. Install it: %s \
-m pip install pandas" (make-string 120 ?x))))
    (duet-rpc-test-with-fake
      (should (equal text (duet-rpc-test-messages-for 0.5
                            (duet-rpc-request "say" (list :text text :level "warn"))))))))


;;; Reload, load and new

(ert-deftest duet-rpc-reload-says-what-was-loaded ()
  (duet-rpc-test-with-fake
    (should (string-match-p "2 methods loaded: upcase, echo"
                            (duet-rpc-test-messages-for 0.5 (duet-rpc-reload)))))
  (with-environment-variables (("FAKE_LOADED" "{\"methods\": [], \"problems\": []}"))
    (duet-rpc-test-with-fake
      (should (string-match-p
               "No methods in ~/.config/duet-rpc/methods/; M-x duet-rpc-new creates one"
               (duet-rpc-test-messages-for 0.5 (duet-rpc-reload)))))))

(ert-deftest duet-rpc-reload-shows-one-problem-in-the-echo-area ()
  (let* ((folder (expand-file-name "~/.config/duet-rpc/methods/"))
         (file (expand-file-name "mine.py" folder))
         (next-error-last-buffer nil))
    (make-directory folder t)
    (write-region "\n\ndef broken(:\n" nil file nil 'silent)
    (unwind-protect
        (with-environment-variables
            (("FAKE_LOADED"
              "{\"methods\": [\"a\"], \"problems\": [\"mine.py:3: SyntaxError: no\"]}"))
          (duet-rpc-test-with-fake
            (save-window-excursion
              (should (string-match-p "1 method loaded; mine.py:3: SyntaxError: no; .* visits"
                                      (duet-rpc-test-messages-for 0.5 (duet-rpc-reload))))
              (should-not (get-buffer-window "*duet-rpc problems*"))
              (next-error)
              (duet-rpc-test-at file 3)
              (kill-buffer (window-buffer)))))
      (kill-buffer "*duet-rpc problems*")
      (delete-directory folder t))))

(ert-deftest duet-rpc-load-file-lists-problems ()
  (duet-rpc-test-with-file file "x = 1\n"
    (with-environment-variables
        (("FAKE_LOADED"
          "{\"methods\": [], \"problems\": [\"FILE:1: A: no\", \"fake_server.py:3: B: no\"]}"))
      (duet-rpc-test-with-fake
        (with-current-buffer (find-file file)
          (goto-char (point-max))
          (insert "y = 2\n")
          (should (string-match-p
                   "0 methods loaded; 2 problems"
                   (duet-rpc-test-messages
                     (cl-letf (((symbol-function 'y-or-n-p) #'always)
                               ((symbol-function 'read-file-name)
                                (lambda (_ _ default &rest _) default)))
                       (call-interactively #'duet-rpc-load-file))
                     (duet-rpc-test-idle))))
          ;; It was offered to save it.
          (should-not (buffer-modified-p)))
        (should (string-match-p (regexp-quote (concat "\"" file "\""))
                                (plist-get (car (duet-rpc-test-seen "loadMethods")) :raw)))
        (should (get-buffer-window "*duet-rpc problems*"))
        (next-error)
        (duet-rpc-test-at file 1)
        ;; Where this file is, the server has said in rpc.discover.
        (next-error)
        (duet-rpc-test-at duet-rpc-test-fake-file 3)))))

(ert-deftest duet-rpc-new-visits-the-new-file ()
  (let ((file (expand-file-name "~/.config/duet-rpc/methods/mine.py")))
    (unwind-protect
        (save-window-excursion
          (duet-rpc-test-with duet-rpc-test-fake-file
            (should (string-match-p
                     "M-x duet-rpc-call RET mine calls it; with M-x duet-rpc-mode"
                     (duet-rpc-test-messages
                       (with-temp-buffer
                         (duet-rpc-test-typing "mine RET" (call-interactively #'duet-rpc-new))))))
            (with-current-buffer (find-buffer-visiting file)
              (should (string-prefix-p "from duet_rpc import" (buffer-string)))
              (kill-buffer))
            (should (string-match-p "mine.py exists already"
                                    (cadr (should-error (duet-rpc-new "mine")
                                                        :type 'user-error))))
            (should-error (duet-rpc-new " ") :type 'user-error)
            (let ((duet-rpc-python "no-such-python"))
              (should (string-match-p "no-such-python"
                                      (cadr (should-error (duet-rpc-new "other")
                                                          :type 'user-error)))))))
      (delete-file file)))
  (duet-rpc-test-with-fake
    (should (string-match-p "`duet-rpc-program' is a complete command"
                            (cadr (should-error (duet-rpc-new "mine") :type 'user-error))))))


;;; Places in the log

(ert-deftest duet-rpc-places-in-the-log-are-links ()
  (duet-rpc-test-with-file file "\n\n\n"
    (duet-rpc-test-with-fake
      (duet-rpc-request "echo")
      (find-file-noselect file)
      (cl-flet ((follow (text)
                  (duet-rpc-show-log)
                  (jit-lock-fontify-now)
                  (goto-char (point-min))
                  (search-forward text)
                  (push-button (match-beginning 0))))
        (duet-rpc--append-log (duet-rpc--server) "ERROR KeyError (fake_server.py:5 in x)\n")
        (duet-rpc--append-log (duet-rpc--server) "ERROR KeyError (words")
        (duet-rpc--append-log (duet-rpc--server) ".py:2 in word_count)\nnowhere.py:1\n")
        (duet-rpc--append-log (duet-rpc--server) (format "  File \"%s\", line 3, in x\n" file))
        (follow "fake_server.py:5")     ; known from rpc.discover
        (duet-rpc-test-at duet-rpc-test-fake-file 5)
        (follow "words.py:2")           ; a file that is being visited
        (duet-rpc-test-at file 2)
        (follow "File \"")
        (duet-rpc-test-at file 3)
        (should-error (follow "nowhere.py:1") :type 'user-error)))))


;;; The doctor

(ert-deftest duet-rpc-doctor-shows-the-programs-report ()
  (duet-rpc-test-with duet-rpc-test-fake-file
    (save-window-excursion
      (duet-rpc-doctor)
      (should (string-match-p "^… program +is running" (buffer-string)))
      (duet-rpc-test-until (not (string-match-p "^…" (buffer-string))))
      (dolist (line '("^✓ Python       3\\.9\\.0, /usr/bin/env$"
                      "^✗ methods      .*fake_server\\.py:3: SyntaxError\n  fix:         fix that line$"
                      "^! log          odd$"
                      "^✓ command      python3 .*fake_server\\.py rpc --debug$"
                      "^1 failure, 1 warning$"))
        (should (string-match-p line (buffer-string))))
      (should-not (string-match-p "a line of the log" (buffer-string)))
      (goto-char (point-min))
      (search-forward "/usr/bin/env")
      (should (button-at (match-beginning 0)))
      (search-forward "fake_server.py:3")
      (push-button (match-beginning 0))
      (duet-rpc-test-at duet-rpc-test-fake-file 3))))

(ert-deftest duet-rpc-doctor-notices-another-library ()
  (duet-rpc-test-with duet-rpc-test-fake-file
    (let* ((directory (make-temp-file "duet-rpc" t))
           (load-path (cons directory load-path)))
      (write-region "" nil (expand-file-name "duet-rpc.el" directory) nil 'silent)
      (unwind-protect
          (save-window-excursion
            (duet-rpc-doctor)
            (should (string-match-p (format "^! load path    another duet-rpc.el is in %s/$"
                                            directory)
                                    (buffer-string)))
            (duet-rpc-test-until (not (string-match-p "^…" (buffer-string)))))
        (delete-directory directory t)))))

;;; author-tests.el ends here
