;;; author-daemon-tests.el --- An author's day, with the real daemon  -*- lexical-binding: t; -*-

;;; Commentary:

;; What author-tests.el promises with the fake server, from end to end:
;; files in the methods folder, the daemon's --debug, its reload at the
;; next call, and the commands `duet-rpc new' and `duet-rpc doctor'.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-folder (expand-file-name "~/.config/duet-rpc/methods/"))

(defconst duet-rpc-test-words (expand-file-name "words.py" duet-rpc-test-folder))

(defmacro duet-rpc-test-with-words (lines &rest body)
  "Run BODY with the real daemon and words.py, which contains LINES."
  (declare (indent 1) (debug t))
  `(let ((next-error-last-buffer nil))
     (make-directory duet-rpc-test-folder t)
     (duet-rpc-test-write ,@lines)
     (unwind-protect
         (duet-rpc-test-with-pyz (save-window-excursion ,@body))
       (dolist (buffer (buffer-list))
         (when (or (member (buffer-name buffer)
                           '("*duet-rpc traceback*" "*duet-rpc problems*"))
                   (string-prefix-p duet-rpc-test-folder
                                    (or (buffer-file-name buffer) "")))
           (with-current-buffer buffer (set-buffer-modified-p nil))
           (kill-buffer buffer)))
       (delete-directory duet-rpc-test-folder t))))

(defun duet-rpc-test-write (&rest lines)
  "Write LINES to words.py, after those that every such file has."
  (write-region (concat "from duet_rpc import method\n\n" (string-join lines "\n") "\n")
                nil duet-rpc-test-words nil 'silent))

(defun duet-rpc-test-at-line (line)
  "Fail unless `next-error' has visited LINE of words.py."
  (with-current-buffer (window-buffer)
    (should (equal buffer-file-name duet-rpc-test-words))
    (should (= line (line-number-at-pos (window-point))))))

(ert-deftest duet-rpc-an-exception-leads-to-its-line ()
  (duet-rpc-test-with-words ("@method" "def word_count(text: str) -> int:"
                             "    \"\"\"Count.\"\"\"" "    return {}[text]")
    (should (equal (cadr (should-error (duet-rpc-test-call "word_count" '(:text "x"))
                                       :type 'user-error))
                   "word_count: KeyError: 'x' (words.py:6); M-g n visits the line, \
M-x duet-rpc-show-traceback shows more"))
    (next-error)
    (duet-rpc-test-at-line 6)
    (with-current-buffer "*duet-rpc traceback*"
      (should (string-match-p "^  File \".*/words.py\", line 6, in word_count$"
                              (buffer-string))))
    ;; The log has the place as well.
    (duet-rpc-test-until
     (string-match-p "words\\.py:6" (duet-rpc--stderr-tail (duet-rpc--server) 20)))))

(ert-deftest duet-rpc-without-debug-the-daemon-tells-nothing ()
  (let ((duet-rpc-debug nil))
    (duet-rpc-test-with-words ("@method" "def fail() -> int:" "    return {}['secret']")
      (let ((err (should-error (duet-rpc-request "fail") :type 'duet-rpc-error)))
        (should (equal (cadr err) "fail: Internal error"))
        (should-not (duet-rpc-error-data err)))
      (should-not (get-buffer "*duet-rpc traceback*")))))

(ert-deftest duet-rpc-a-saved-file-is-used-by-the-next-call ()
  (duet-rpc-test-with-words ("@method" "def number() -> int:" "    return 1")
    (should (= 1 (duet-rpc-request "number")))
    (duet-rpc-test-write "@method" "def number() -> int:" "    return 22")
    (should (= 22 (duet-rpc-request "number")))))

(ert-deftest duet-rpc-a-broken-file-is-reported-and-its-methods-remain ()
  (duet-rpc-test-with-words ("@method" "def number() -> int:" "    return 1")
    (should (= 1 (duet-rpc-request "number")))
    (duet-rpc-test-write "@method" "def number( -> int:" "    return 22")
    (let ((shown (duet-rpc-test-messages-for 1
                   (should (= 1 (duet-rpc-request "number"))))))
      (should (string-match-p "words\\.py:4: SyntaxError" shown)))
    (next-error)
    (duet-rpc-test-at-line 4)
    (should (string-match-p "1 method loaded; words\\.py:4: SyntaxError"
                            (duet-rpc-test-messages-for 0.5 (duet-rpc-reload))))
    (duet-rpc-test-write "@method" "def number() -> int:" "    return 333")
    (should (string-match-p "1 method loaded: number"
                            (duet-rpc-test-messages-for 0.5 (duet-rpc-reload))))
    (should (= 333 (duet-rpc-request "number")))))

(ert-deftest duet-rpc-a-failure-of-an-earlier-version-is-said-to-be-that ()
  (duet-rpc-test-with-words ("@method" "def number() -> int:" "    return 1 / 0")
    (should-error (duet-rpc-request "number") :type 'duet-rpc-error)
    (duet-rpc-test-write "@method" "def number( -> int:" "    return 22")
    (should (string-prefix-p "number: ZeroDivisionError: division by zero (words.py:5), \
before the last change, which could not be loaded: words.py:4: SyntaxError: "
                             (cadr (should-error (duet-rpc-request "number")
                                                 :type 'duet-rpc-error))))
    (duet-rpc-test-until (get-buffer "*duet-rpc problems*"))))

(ert-deftest duet-rpc-a-method-in-a-broken-file-is-not-found-with-a-reason ()
  (duet-rpc-test-with-words ("@method" "def number( -> int:" "    return 1")
    (should (string-match-p "\\`number: Method not found; a file could not be loaded: \
words\\.py:4: SyntaxError"
                            (cadr (should-error (duet-rpc-test-call "number" nil)
                                                :type 'user-error))))
    (next-error)
    (duet-rpc-test-at-line 4)))

(ert-deftest duet-rpc-load-file-loads-any-file ()
  (duet-rpc-test-with-pyz
    (let ((file (make-temp-file "duet-rpc" nil ".py" "from duet_rpc import method\n
@method\ndef elsewhere() -> str:\n    return 'here'\n")))
      (unwind-protect
          (progn
            (should (string-match-p "1 method loaded: elsewhere"
                                    (duet-rpc-test-messages
                                      (duet-rpc-load-file file)
                                      (duet-rpc-test-idle))))
            (should (equal "here" (duet-rpc-request "elsewhere"))))
        (delete-file file)))))

(ert-deftest duet-rpc-new-creates-a-method-that-runs ()
  (unwind-protect
      (duet-rpc-test-with-pyz
        (duet-rpc-request "version")
        (save-window-excursion
          (duet-rpc-new "my_first")
          (should (string-prefix-p duet-rpc-test-folder
                                   (buffer-file-name (window-buffer))))
          (should (duet-rpc--find-description "my_first"))
          (should-error (duet-rpc-new "my_first") :type 'user-error)
          (kill-buffer (window-buffer))))
    (delete-directory duet-rpc-test-folder t)))

(ert-deftest duet-rpc-doctor-leads-to-a-broken-file ()
  (duet-rpc-test-with-words ("@method" "def number( -> int:" "    return 1")
    (duet-rpc-doctor)
    (duet-rpc-test-until (not (string-match-p "^…" (buffer-string))) 30)
    (goto-char (point-min))
    (should (re-search-forward "^✗ methods +.*words\\.py:4: SyntaxError.*\n  fix: " nil t))
    (goto-char (point-min))
    (search-forward "words.py:4")
    (push-button (match-beginning 0))
    (duet-rpc-test-at-line 4)))

;;; author-daemon-tests.el ends here
