;;; commands-daemon-tests.el --- Commands in Python, with the real daemon  -*- lexical-binding: t; -*-

;;; Commentary:

;; What commands-tests.el and results-tests.el promise with the fake server,
;; from end to end.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-folder (expand-file-name "~/.config/duet-rpc/methods/"))

(defconst duet-rpc-test-words (expand-file-name "words.py" duet-rpc-test-folder))

(defmacro duet-rpc-test-with-python (lines &rest body)
  "Save a file with LINES in Emacs, with `duet-rpc-mode' on, and run BODY.
It runs in a buffer of its own."
  (declare (indent 1) (debug t))
  `(let ((duet-rpc--reported-problems nil)
         (next-error-last-buffer nil))
     (make-directory duet-rpc-test-folder t)
     (unwind-protect
         (duet-rpc-test-with-pyz
           (duet-rpc-mode 1)
           (duet-rpc-test-save ,@lines)
           (save-window-excursion
             (with-temp-buffer
               (buffer-enable-undo)
               (transient-mark-mode 1)
               (set-window-buffer nil (current-buffer))
               ,@body)))
       (duet-rpc-mode -1)
       (ignore-errors (delete-file (duet-rpc--commands-file)))
       (dolist (buffer (buffer-list))
         (when (string-prefix-p duet-rpc-test-folder (or (buffer-file-name buffer) ""))
           (with-current-buffer buffer (set-buffer-modified-p nil))
           (kill-buffer buffer)))
       (delete-directory duet-rpc-test-folder t))))

(defun duet-rpc-test-save (&rest lines)
  "Save words.py with LINES, after an import; wait for what that changes."
  (with-current-buffer (find-file-noselect duet-rpc-test-words)
    (erase-buffer)
    (insert "from duet_rpc import Buffer, Edit, Goto, Region, Text, command\n\n"
            (string-join lines "\n") "\n")
    (save-buffer))
  (accept-process-output nil 0.05)
  (duet-rpc-test-until (not duet-rpc--refreshing-commands))
  (duet-rpc-test-idle))

(ert-deftest duet-rpc-the-first-screen-of-the-readme-is-true ()
  (let ((code (with-temp-buffer
                (insert-file-contents (expand-file-name "README.md" duet-rpc-test-top))
                (re-search-forward "^```python\n\\(\\(?:.*\n\\)*?\\)```$")
                (match-string 1))))
    (duet-rpc-test-with-python (code)
      (should (eq 'sort-words (key-binding (kbd "C-c w"))))
      (insert "pear fig apple")
      (duet-rpc-test-run 'sort-words)
      (should (equal (buffer-string) "apple fig pear")))))

(ert-deftest duet-rpc-messages-of-the-manual-are-true ()
  (let ((good '("@command(key=\"C-c w\")"
                "def word_count(text: Region) -> int:"
                "    counts: dict = {}"
                "    return counts[text]")))
    (global-set-key (kbd "C-c w") #'ignore)
    (unwind-protect
        (duet-rpc-test-with-python ("")
          (should (string-match-p
                   (duet-rpc-test-quoted "emacs.md" "words.py:3: sort-words has no key"
                                         '("sort-words" . "word-count"))
                   (duet-rpc-test-messages-for 0.5 (apply #'duet-rpc-test-save good))))
          (insert "x")
          (should (string-match-p
                   (duet-rpc-test-quoted "emacs.md" "word_count: KeyError: 'x' (words.py:12); M-g n")
                   (duet-rpc-test-messages (duet-rpc-test-run 'word-count))))
          (should (string-match-p
                   (duet-rpc-test-quoted "methods.md" "word_count: KeyError: 'x'")
                   (duet-rpc-test-messages (duet-rpc-test-run 'word-count))))
          (should (string-match-p
                   (duet-rpc-test-quoted "emacs.md" "words.py:12: SyntaxError")
                   (duet-rpc-test-messages
                     (apply #'duet-rpc-test-save (append good '("def (")))
                     (ignore-errors (duet-rpc-request "word_count" '(:text "x")))
                     (duet-rpc-test-idle)))))
      (global-unset-key (kbd "C-c w")))))

(ert-deftest duet-rpc-a-file-that-another-program-saves-is-a-command ()
  (skip-unless file-notify--library)
  (duet-rpc-test-with-python ("@command" "def here() -> str:" "    return 'here'")
    (let ((other (expand-file-name "other.py" duet-rpc-test-folder)))
      (cl-flet ((run (command) (call-process "sh" nil nil nil "-c" command "sh" other)))
        (run "printf 'from duet_rpc import command\n@command\ndef there() -> str:\n    return 1\n' > \"$1\"")
        ;; In batch mode, notifications are read as other input is.
        (duet-rpc-test-until (progn (read-event nil nil 0.05) (commandp 'there)))
        (should (commandp 'here))
        (run "rm \"$1\"")
        (duet-rpc-test-until (progn (read-event nil nil 0.05) (not (fboundp 'there))))
        (duet-rpc-mode -1)
        (run "printf 'from duet_rpc import command\n@command\ndef there() -> str:\n    return 1\n' > \"$1\"")
        (dotimes (_ 10) (read-event nil nil 0.05))
        (should-not (fboundp 'there))))))

(ert-deftest duet-rpc-the-folder-of-methods-is-made-and-watched ()
  (skip-unless file-notify--library)
  (unwind-protect
      (duet-rpc-test-with-pyz
        (should-not (file-exists-p duet-rpc-test-folder))
        (duet-rpc-mode 1)
        (duet-rpc--look-for-new-commands) ; as when Emacs is first idle
        (call-process "sh" nil nil nil "-c"
                      "printf 'from duet_rpc import command\\n@command\\ndef there() -> str:\\n    return 1\\n' > \"$1\""
                      "sh" duet-rpc-test-words)
        (duet-rpc-test-until (progn (read-event nil nil 0.05) (commandp 'there))))
    (duet-rpc-mode -1)
    (ignore-errors (delete-file (duet-rpc--commands-file)))
    (delete-directory duet-rpc-test-folder t)))

(ert-deftest duet-rpc-a-command-that-another-program-saved-is-there-after-any-list ()
  (duet-rpc-test-with-python ("@command" "def first() -> int:" "    return 1")
    (write-region "from duet_rpc import command\n@command\ndef second() -> int: return 2\n"
                  nil (expand-file-name "more.py" duet-rpc-test-folder) nil 'silent)
    (should-not (commandp 'second))
    (should (duet-rpc--methods)) ; as `duet-rpc-call' does
    (should (commandp 'second))
    (should (commandp 'first))))

(ert-deftest duet-rpc-six-lines-of-python-are-a-command ()
  (duet-rpc-test-with-python ("@command(key=\"C-c w\", result=\"replace\")"
                              "def sort_words(text: Region) -> str:"
                              "    \"\"\"Sort the words of the region.\"\"\""
                              "    return \" \".join(sorted(text.split()))")
    (should (eq 'sort-words (key-binding (kbd "C-c w"))))
    (should (string-prefix-p "Sort the words of the region." (documentation 'sort-words)))
    (insert "pear fig apple; more")
    (goto-char 15)
    (push-mark 1 t t)
    (duet-rpc-test-run 'sort-words)
    (should (equal (buffer-string) "apple fig pear; more"))
    ;; A change counts from the next call on.
    (duet-rpc-test-save "@command(key=\"C-c v\", result=\"replace\")"
                        "def sort_words(text: Region) -> str:"
                        "    return \" \".join(sorted(text.split(), reverse=True))"
                        "@command"
                        "def count(text: Region, least: int = 0) -> int:"
                        "    return len([word for word in text.split() if len(word) >= least])")
    (should-not (key-binding (kbd "C-c w")))
    (should (commandp 'count))
    (erase-buffer)
    (insert "a b")
    (duet-rpc-test-run (key-binding (kbd "C-c v")))
    (should (equal (buffer-string) "b a"))
    (should (equal "2" (duet-rpc-test-messages
                         (duet-rpc-test-typing "<f6> RET"
                           (local-set-key (kbd "<f6>") 'count)))))
    ;; Without the file there is no command.
    (duet-rpc-test-save "")
    (should-not (fboundp 'sort-words))
    (should-not (fboundp 'count))))

(ert-deftest duet-rpc-python-edits-the-buffer ()
  (duet-rpc-test-with-python ("import re"
                              "@command"
                              "def trim(text: Buffer) -> \"list[Edit]\":"
                              "    return [Edit(m.start(), m.end(), '')"
                              "            for m in re.finditer('[ ]+$', text, re.M)]")
    (insert "é one  \n\U0001F600 two   \nthree")
    (goto-char 4)
    (undo-boundary)
    (duet-rpc-test-run 'trim)
    (should (equal (buffer-string) "é one\n\U0001F600 two\nthree"))
    (should (= 4 (point)))
    (undo)
    (should (equal (buffer-string) "é one  \n\U0001F600 two   \nthree"))))

(ert-deftest duet-rpc-python-returns-texts-tables-and-places ()
  (duet-rpc-test-with-python ("@command" "def text_of() -> Text:"
                              "    return Text('* x', mode='outline-mode')"
                              "@command" "def table_of() -> list:"
                              "    return [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]"
                              "@command" "def place_of() -> Goto:"
                              "    return Goto(__file__, 3)")
    (duet-rpc-test-run 'text-of)
    (with-current-buffer "*duet-rpc result*"
      (should (eq major-mode 'outline-mode)))
    (duet-rpc-test-run 'table-of)
    (with-current-buffer "*duet-rpc result*"
      (should (derived-mode-p 'tabulated-list-mode))
      (should (string-match-p "1 +x" (buffer-string))))
    (duet-rpc-test-run 'place-of)
    (with-current-buffer (window-buffer)
      (should (equal duet-rpc-test-words buffer-file-name))
      (should (= 3 (line-number-at-pos))))))

(ert-deftest duet-rpc-a-command-that-fails-leads-to-its-line ()
  (duet-rpc-test-with-python ("@command" "def fails() -> str:" "    return {}['x']")
    (should (string-match-p "\\`fails: KeyError: 'x' (words.py:5); .* visits the line"
                            (duet-rpc-test-run 'fails)))
    (next-error)
    (with-current-buffer (window-buffer)
      (should (equal duet-rpc-test-words buffer-file-name))
      (should (= 5 (line-number-at-pos (window-point)))))))

(ert-deftest duet-rpc-a-running-python-command-can-be-cancelled ()
  (duet-rpc-test-with-python ("@command" "def spin() -> int:" "    while True: pass"
                              "@command" "def quick() -> str:" "    return 'quick'")
    (call-interactively 'spin)
    (accept-process-output nil 0.3)
    (let ((pid (duet-rpc-test-pid)))
      (should (equal "spin cancelled"
                     (duet-rpc-test-messages (call-interactively (key-binding (kbd "C-g"))))))
      (should (equal "quick" (duet-rpc-test-run 'quick)))
      (should (= pid (duet-rpc-test-pid))))))

(ert-deftest duet-rpc-a-broken-file-keeps-its-commands ()
  (duet-rpc-test-with-python ("@command" "def quick() -> str:" "    return 'quick'")
    (should (string-match-p "words\\.py:4: SyntaxError"
                            (duet-rpc-test-messages-for 0.5
                              (duet-rpc-test-save "@command" "def quick( -> str:"))))
    (should (equal "quick" (car (split-string (duet-rpc-test-run 'quick) "\n"))))))

;;; commands-daemon-tests.el ends here
