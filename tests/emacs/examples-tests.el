;;; examples-tests.el --- The examples, as commands of a real Emacs  -*- lexical-binding: t; -*-

;;; Commentary:

;; The files of examples/ are copied into the methods folder, and each command is run on a buffer.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-folder (expand-file-name "~/.config/duet-rpc/methods/"))

(defmacro duet-rpc-test-with-example (file text &rest body)
  "Run BODY in a buffer with TEXT, with FILE of the examples in the methods folder."
  (declare (indent 2) (debug t))
  `(progn
     (make-directory duet-rpc-test-folder t)
     (unwind-protect
         (duet-rpc-test-with-pyz
           (copy-file (expand-file-name (concat "examples/" ,file) duet-rpc-test-top)
                      duet-rpc-test-folder t)
           (duet-rpc-mode 1)
           (duet-rpc-reload)
           (save-window-excursion
             (with-temp-buffer
               (buffer-enable-undo)
               (transient-mark-mode 1)
               (set-window-buffer nil (current-buffer))
               (insert ,text)
               (goto-char (point-min))
               ,@body)))
       (duet-rpc-mode -1)
       (ignore-errors (delete-file (duet-rpc--commands-file)))
       (delete-directory duet-rpc-test-folder t))))

(defun duet-rpc-test-shown ()
  "Return the text of the buffer with the result."
  (with-current-buffer "*duet-rpc result*" (buffer-string)))

(ert-deftest duet-rpc-example-natural-sort ()
  (duet-rpc-test-with-example "natural_sort.py" "file10\nfile9\nfile1\n"
    (goto-char (+ 2 (point-min)))
    (duet-rpc-test-run 'sort-naturally)
    (should (equal (buffer-string) "file1\nfile9\nfile10\n"))))

(ert-deftest duet-rpc-example-increment ()
  (duet-rpc-test-with-example "increment.py" "a 1, b 009"
    (let ((current-prefix-arg 2))
      (duet-rpc-test-run 'increment-numbers))
    (should (equal (buffer-string) "a 3, b 011"))))

(ert-deftest duet-rpc-example-reformat ()
  (duet-rpc-test-with-example "reformat.py" "{\"a\":[1]}"
    (duet-rpc-test-run 'reformat-json)
    (should (equal (buffer-string) "{\n  \"a\": [\n    1\n  ]\n}\n"))))

(ert-deftest duet-rpc-example-csv-table ()
  (duet-rpc-test-with-example "csv_table.py" "town,people\nUlm,126000\nBern,134000\n"
    (duet-rpc-test-run 'csv-table)
    (should (string-match-p "Bern +134000" (duet-rpc-test-shown)))
    (should (with-current-buffer "*duet-rpc result*" (derived-mode-p 'tabulated-list-mode)))))

(ert-deftest duet-rpc-example-doubled-words ()
  (duet-rpc-test-with-example "doubled_words.py" "the the end"
    (text-mode)
    (duet-rpc-test-run 'remove-doubled-words)
    (should (equal (buffer-string) "the the end"))
    (let ((review (seq-find (lambda (buffer)
                              (with-current-buffer buffer
                                (lookup-key (current-local-map) (kbd "C-c C-c"))))
                            (mapcar #'window-buffer (window-list)))))
      (with-current-buffer review
        (call-interactively (key-binding (kbd "C-c C-c")))))
    (should (equal (buffer-string) "the end"))))

(ert-deftest duet-rpc-example-that-finds-nothing-to-edit-edits-nothing ()
  (duet-rpc-test-with-example "doubled_words.py" "all is well"
    (text-mode)
    (duet-rpc-test-run 'remove-doubled-words)
    (should (equal (buffer-string) "all is well"))))

(ert-deftest duet-rpc-example-epoch ()
  (duet-rpc-test-with-example "epoch.py" "0"
    (should (string-match-p "1970-01-01" (duet-rpc-test-run 'show-time)))))

(ert-deftest duet-rpc-example-readability ()
  (duet-rpc-test-with-example "readability.py" "One two. Three."
    (cl-letf (((symbol-function 'read-from-minibuffer) (lambda (&rest _) "5"))
              ((symbol-function 'read-string) (lambda (&rest _) "5")))
      (duet-rpc-test-run 'readability))
    (should (string-match-p "\"words\": 3" (duet-rpc-test-shown)))))

(ert-deftest duet-rpc-example-places ()
  (duet-rpc-test-with-example "places.py" ""
    (let* ((folder (make-temp-file "duet-rpc" t))
           (file (expand-file-name "a.txt" folder)))
      (unwind-protect
          (progn
            (write-region "one\nTODO two\n\nFIXME four\n" nil file nil 'silent)
            (with-current-buffer (find-file-noselect file)
              (set-window-buffer nil (current-buffer))
              (duet-rpc-test-run 'list-todos)
              (should (= 2 (line-number-at-pos)))
              (next-error)
              (next-error)
              (should (= 4 (line-number-at-pos)))
              (kill-buffer)))
        (delete-directory folder t)))))

(ert-deftest duet-rpc-example-run-region ()
  (duet-rpc-test-with-example "run_region.py" "echo $((6 * 7))"
    (setq major-mode 'sh-mode)
    (duet-rpc-test-run 'run-region)
    (should (string-match-p "42" (duet-rpc-test-shown)))))

(ert-deftest duet-rpc-example-chart ()
  (duet-rpc-test-with-example "chart.py" "a 1\nb 2\n"
    (should (string-match-p "image\\|picture" (duet-rpc-test-run 'chart)))))

(ert-deftest duet-rpc-example-chat-streams ()
  (duet-rpc-test-with-example "chat.py" "I need a holiday."
    (goto-char (point-max))
    (let ((seen 0))
      (add-hook 'after-change-functions (lambda (&rest _) (cl-incf seen)) nil t)
      (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "")))
        (duet-rpc-test-run 'chat-answer))
      (should (string-match-p "\\`I need a holiday\\.\nWhy do you want a holiday\\? .* \n\\'"
                              (buffer-string)))
      (should (eobp))
      (should (< 3 seen)))))

(ert-deftest duet-rpc-example-rename-symbol-asks ()
  (duet-rpc-test-with-example "rename_symbol.py" ""
    (let* ((folder (make-temp-file "duet-rpc" t))
           (file (lambda (name) (expand-file-name name folder))))
      (unwind-protect
          (progn
            (dolist (name '("a.txt" "b.txt" "c.txt"))
              (write-region "old new old\n" nil (funcall file name) nil 'silent))
            (with-current-buffer (find-file-noselect (funcall file "a.txt"))
              (set-window-buffer nil (current-buffer))
              (let (confirmed)
                (cl-letf (((symbol-function 'read-string) (lambda (&rest _) "fresh"))
                          ((symbol-function 'completing-read-multiple)
                           (lambda (&rest _) '("a.txt" "c.txt")))
                          ((symbol-function 'y-or-n-p)
                           (lambda (prompt) (setq confirmed prompt))))
                  (should (string-match-p "old is fresh now in a.txt, c.txt"
                                          (duet-rpc-test-run 'rename-symbol))))
                (should (equal confirmed "Change 2 of 3 files? ")))
              ;; The buffer that visits one of the files has been reverted.
              (should (equal (buffer-string) "fresh new fresh\n"))
              (should-not (buffer-modified-p))
              (kill-buffer))
            (with-temp-buffer
              (insert-file-contents (funcall file "b.txt"))
              (should (equal (buffer-string) "old new old\n"))))
        (delete-directory folder t)))))

(ert-deftest duet-rpc-example-watch-file-pushes ()
  (duet-rpc-test-with-example "watch_file.py" ""
    (let ((file (make-temp-file "duet-rpc" nil ".txt" "one\n"))
          (duet-rpc--handlers (make-hash-table :test #'equal)))
      ;; As docs/commands.md has it.
      (duet-rpc-handle "file-changed"
                       (lambda (params)
                         (when-let ((buffer (find-buffer-visiting (plist-get params :file))))
                           (with-current-buffer buffer (revert-buffer t t t)))))
      (unwind-protect
          (with-current-buffer (find-file-noselect file)
            (set-window-buffer nil (current-buffer))
            (should (string-match-p "is watched" (duet-rpc-test-run 'watch-file)))
            (with-temp-buffer
              (insert "two\n")
              (let ((coding-system-for-write 'utf-8-unix))
                (write-region (point-min) (point-max) file nil 'silent))
              (set-file-times file (time-add nil 5)))
            (duet-rpc-test-until (equal (buffer-string) "two\n"))
            (should (string-match-p "not watched" (duet-rpc-test-run 'watch-file)))
            (kill-buffer))
        (delete-file file)))))

(provide 'examples-tests)
;;; examples-tests.el ends here
