;;; commands-tests.el --- Commands in Python, and their keys and parameters  -*- lexical-binding: t; -*-

;;; Commentary:

;; With a fake server; commands-daemon-tests.el has the real one.

;;; Code:

(require 'duet-rpc-test-commands)


;;; Defining commands

(ert-deftest duet-rpc-a-python-command-is-an-emacs-command ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (should (commandp 'my-sort))
    (should (eq 'my-sort (key-binding (kbd "C-c w"))))
    (duet-rpc-test-returns "a b c")
    (insert "c b a; more")
    (goto-char 6)
    (push-mark 1 t t)
    (duet-rpc-test-run 'my-sort)
    (should (equal (buffer-string) "a b c; more"))
    (should (equal (plist-get (duet-rpc-test-sent) :text) "c b a"))
    (duet-rpc-mode -1)
    (should-not (fboundp 'my-sort))
    (should-not (key-binding (kbd "C-c w")))))

(ert-deftest duet-rpc-help-shows-docstring-key-and-source ()
  (duet-rpc-test-with-commands
      (list '("sort" (("text" (:type "string")) ("top" (:type "integer" :description "How many")))
              (:name "my-sort" :key "C-c w" :sources (:text "region"))))
    (save-window-excursion
      (describe-function 'my-sort)
      (with-current-buffer "*Help*"
        (dolist (text '("C-c w" "As `told' in \\[quit]." "text: the region" "top: integer"
                        "How many" "`py.sort'"))
          (should (string-search text (substring-no-properties (buffer-string)))))
        (goto-char (point-min))
        (search-forward "fake_server.py:3")
        (push-button (match-beginning 0)))
      (with-current-buffer (window-buffer)
        (should (equal buffer-file-name (cadr duet-rpc-test-fake)))
        (should (= 3 (line-number-at-pos (window-point))))))))

(ert-deftest duet-rpc-commands-of-the-last-session-are-there-at-once ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (duet-rpc-mode -1)
    (duet-rpc-stop)
    (let ((duet-rpc--servers (make-hash-table :test #'equal)))
      (duet-rpc-mode 1)
      (should (commandp 'my-sort))
      ;; And no process is running.
      (should (= 0 (hash-table-count duet-rpc--servers)))
      ;; The first call starts it.
      (duet-rpc-test-returns "x")
      (insert "abc")
      (duet-rpc-test-run 'my-sort)
      (should (equal (buffer-string) "x"))
      (duet-rpc-test-refreshed)
      (duet-rpc-stop)
      (duet-rpc-mode -1))))

(ert-deftest duet-rpc-a-damaged-file-of-commands-is-ignored ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (dolist (text '("" "(" "nil" "(duet-rpc-commands 1)" "(duet-rpc-commands 2 nil 7 (:name))"
                    "(duet-rpc-commands 2 nil (:name \"x\" :x-command (:name 3)))"
                    "(duet-rpc-commands 2 ((\"C-c x\" . 7)))" "(duet-rpc-commands 2 7)"
                    "(error \"evaluated\")" "(duet-rpc-commands 2 nil . #s(hash-table))"))
      (duet-rpc-mode -1)
      (write-region text nil (duet-rpc--commands-file) nil 'silent)
      (let ((duet-rpc--servers (make-hash-table :test #'equal)))
        (duet-rpc-mode 1)
        (should-not (fboundp 'my-sort))))))

(ert-deftest duet-rpc-a-changed-file-changes-the-commands ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (duet-rpc-test-describe (duet-rpc-test-simple :key "C-c w"))
    (duet-rpc-request "announce")
    (duet-rpc-test-refreshed)
    (should-not (fboundp 'my-sort))
    (should (eq 'my-do (key-binding (kbd "C-c w"))))
    ;; A saved file does the same.
    (duet-rpc-test-describe duet-rpc-test-sort)
    (let ((file (expand-file-name "~/.config/duet-rpc/methods/new.py")))
      (make-directory (file-name-directory file) t)
      (unwind-protect
          (with-current-buffer (find-file-noselect file)
            (insert "x = 1\n")
            (should (string-match-p "New: M-x my-sort (C-c w)"
                                    (duet-rpc-test-messages
                                      (save-buffer)
                                      (duet-rpc-test-refreshed))))
            (kill-buffer))
        (delete-directory (file-name-directory file) t)))
    (should (eq 'my-sort (key-binding (kbd "C-c w"))))
    (should-not (fboundp 'my-do))
    (duet-rpc-test-describe)
    (duet-rpc-test-run 'duet-rpc-reload)
    (duet-rpc-test-refreshed)
    (should-not (fboundp 'my-sort))
    (should-not (key-binding (kbd "C-c w")))))

(ert-deftest duet-rpc-files-that-are-new-are-noticed-once ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (let ((folder (expand-file-name "~/.config/duet-rpc/methods/"))
          (count (length (duet-rpc-test-seen "rpc.discover"))))
      (cl-flet ((asked () (duet-rpc--look-for-new-commands)
                  (duet-rpc-test-refreshed)
                  (- (length (duet-rpc-test-seen "rpc.discover")) count)))
        ;; There is no folder, or nothing new in it.
        (should (= 0 (asked)))
        (make-directory folder t)
        (unwind-protect
            (let ((file (expand-file-name "x.py" folder)))
              (write-region "" nil file nil 'silent)
              (set-file-times file 0)
              (should (= 0 (asked)))
              (set-file-times file (time-add nil 10))
              (should (= 1 (asked)))
              ;; It has no command that was not known, and is new only once.
              (set-file-times (duet-rpc--commands-file) 0)
              (set-file-times file 5)
              (should (= 2 (asked)))
              (should (= 2 (asked))))
          (delete-directory folder t))))))

(ert-deftest duet-rpc-a-command-takes-no-name-that-is-used ()
  (let ((shown
         (duet-rpc-test-messages-for 0.3
           (duet-rpc-test-with-commands
               (list (duet-rpc-test-simple :name "find-file")
                     '("do" nil (:name "find-file"))
                     '("a" nil (:name "my-a")) '("b" nil (:name "my-a")))
             (should (subrp (ignore-errors (symbol-function 'car))))
             (should-not (gethash 'find-file duet-rpc--commands))
             (should (equal "py.a" (plist-get (gethash 'my-a duet-rpc--commands) :name)))
             (duet-rpc-request "announce")
             (duet-rpc-test-refreshed)
             (accept-process-output nil 0.2)))))
    (should (= 1 (with-temp-buffer
                   (insert shown)
                   (how-many "fake_server.py:3: the command find-file is not defined"
                             (point-min) (point-max)))))
    (should (string-search "there is another command my-a (fake_server.py:3)" shown))
    (should (commandp 'find-file))
    (should-not (fboundp 'my-a))))

(ert-deftest duet-rpc-a-command-takes-no-key-that-is-bound ()
  (let ((shown
         (duet-rpc-test-messages-for 0.3
           (duet-rpc-test-with-commands
               (list '("a" nil (:name "my-a" :key "C-x C-f"))
                     '("b" nil (:name "my-b" :key "C-x"))
                     '("c" nil (:name "my-c" :key "C-x C-f x"))
                     '("d" nil (:name "my-d" :key "C-c d")))
             (should (eq 'find-file (key-binding (kbd "C-x C-f"))))
             (should (keymapp (key-binding (kbd "C-x"))))
             (should (commandp 'my-a))
             ;; What the user binds later is the user's.
             (global-set-key (kbd "C-c d") #'ignore)
             (duet-rpc-request "announce")
             (duet-rpc-test-refreshed)
             (should (eq 'ignore (key-binding (kbd "C-c d"))))))))
    (should (eq 'ignore (key-binding (kbd "C-c d"))))
    (global-unset-key (kbd "C-c d"))
    (dolist (text '("fake_server.py:3: my-a has no key: C-x C-f is bound to find-file"
                    "my-b has no key: C-x is bound to a prefix of other keys"
                    "my-c has no key: C-x C-f x is bound to a command up to there"
                    "my-d has no key: C-c d is bound to ignore"))
      (should (string-search text shown)))))

(ert-deftest duet-rpc-a-command-may-be-for-some-modes-only ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :key "C-c w" :modes ["text-mode"]))
    (should (equal '(text-mode) (command-modes 'my-do)))
    (should-not (key-binding (kbd "C-c w")))
    (should-error (call-interactively 'my-do) :type 'user-error)
    (text-mode)
    (should (eq 'my-do (key-binding (kbd "C-c w"))))
    (should (string-match-p "result" (duet-rpc-test-run 'my-do)))
    (duet-rpc-mode -1)
    (should-not (key-binding (kbd "C-c w")))))

(ert-deftest duet-rpc-commands-for-different-modes-may-share-a-key ()
  (let ((shown
         (duet-rpc-test-messages-for 0.3
           (duet-rpc-test-with-commands
               (list '("a" nil (:name "my-a" :key "C-c w" :modes ["text-mode"]))
                     '("b" nil (:name "my-b" :key "C-c w" :modes ["prog-mode"]))
                     '("c" nil (:name "my-c" :key "C-c w" :modes ["text-mode" "dired-mode"])))
             (should-not (key-binding (kbd "C-c w")))
             (text-mode)
             (should (eq 'my-a (key-binding (kbd "C-c w"))))
             ;; The second time must not depend on the buffer either.
             (duet-rpc-request "announce")
             (duet-rpc-test-refreshed)
             (should (eq 'my-a (key-binding (kbd "C-c w"))))
             (emacs-lisp-mode)
             (should (eq 'my-b (key-binding (kbd "C-c w"))))
             (duet-rpc-test-describe
              '("b" nil (:name "my-b" :key "C-c w" :modes ["prog-mode"])))
             (duet-rpc-request "announce")
             (duet-rpc-test-refreshed)
             (should (eq 'my-b (key-binding (kbd "C-c w"))))
             (text-mode)
             (should-not (key-binding (kbd "C-c w")))))))
    (should (string-search "my-c has no key: C-c w is bound to my-a" shown))
    (should-not (string-search "my-b has no key" shown))
    (should-not (lookup-key global-map (kbd "C-c w")))))

(ert-deftest duet-rpc-commands-may-swap-their-keys ()
  (should-not
   (string-search
    "has no key"
    (duet-rpc-test-messages-for 0.3
      (duet-rpc-test-with-commands (list '("a" nil (:name "my-a" :key "C-c a"))
                                         '("b" nil (:name "my-b" :key "C-c b")))
        (duet-rpc-test-describe '("a" nil (:name "my-a" :key "C-c b"))
                                '("b" nil (:name "my-b" :key "C-c a")))
        (duet-rpc-request "announce")
        (duet-rpc-test-refreshed)
        (should (eq 'my-a (key-binding (kbd "C-c b"))))
        (should (eq 'my-b (key-binding (kbd "C-c a")))))))))

(ert-deftest duet-rpc-a-key-may-have-a-prefix-of-its-own ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :key "C-c m s"))
    (should (eq 'my-do (key-binding (kbd "C-c m s"))))
    ;; The prefix that is left is nobody's.
    (duet-rpc-test-describe (duet-rpc-test-simple :key "C-c m"))
    (duet-rpc-request "announce")
    (duet-rpc-test-refreshed)
    (should (eq 'my-do (key-binding (kbd "C-c m"))))))

(ert-deftest duet-rpc-a-key-that-the-user-has-bound-since-is-left-alone ()
  (unwind-protect
      (progn
        (duet-rpc-test-with-commands
            (list (duet-rpc-test-simple :key "C-c w" :modes ["text-mode"]))
          (global-set-key (kbd "C-c w") #'ignore)
          (text-mode))
        (should (eq 'ignore (key-binding (kbd "C-c w")))))
    (global-unset-key (kbd "C-c w"))))


;;; Where parameters come from

(ert-deftest duet-rpc-parameters-come-from-their-sources ()
  (let ((string duet-rpc-test-string))
    (duet-rpc-test-with-commands
        (list `("do" (("region" ,string) ("buffer" ,string) ("line" ,string) ("symbol" ,string)
                      ("file" ,string) ("point" (:type "integer")) ("mode" ,string)
                      ("prefix" (:type "integer")) ("name" ,string) ("count" (:type "integer"))
                      ("flags" (:type "array")))
                (:name "my-do" :result "none"
                       :sources (:region "region" :buffer "buffer" :line "line"
                                         :symbol "symbol" :file "file" :point "point"
                                         :mode "mode" :prefix "prefix"
                                         :name (:lisp "(concat \"x\" (buffer-name))")
                                         :flags (:lisp "(list 1 2)")))))
      (insert "hidden\nfirst word here\nlast")
      (narrow-to-region 8 (point-max))
      (setq buffer-file-name "/nowhere/file.txt")
      (goto-char 16)
      (duet-rpc-test-typing "C-u 7 <f6> 42 RET"
        (local-set-key (kbd "<f6>") 'my-do))
      (duet-rpc-test-idle)
      (setq buffer-file-name nil)
      (set-buffer-modified-p nil)
      (let ((sent (duet-rpc-test-sent)))
        (pcase-dolist (`(,key . ,value)
                       `((:region . "first word here\nlast") (:buffer . "first word here\nlast")
                         (:line . "first word here") (:symbol . "word")
                         (:file . "/nowhere/file.txt") (:point . 8)
                         (:mode . "fundamental-mode") (:prefix . 7)
                         (:name . ,(concat "x" (buffer-name))) (:count . 42) (:flags . [1 2])))
          (should (equal value (plist-get sent key)))))
      ;; Not every buffer visits a file.
      (should (string-match-p "visits no file" (cadr (should-error (call-interactively 'my-do)
                                                                   :type 'user-error)))))))

(ert-deftest duet-rpc-optional-sources-are-left-out ()
  (let ((string duet-rpc-test-string))
    (duet-rpc-test-with-commands
        (list `("do" (("symbol" ,string t) ("file" ,string t) ("prefix" (:type "integer") t))
                (:name "my-do" :sources (:symbol "symbol" :file "file" :prefix "prefix"))))
      (duet-rpc-test-run 'my-do)
      (should (equal '(:_meta) (cl-loop for (key) on (duet-rpc-test-sent) by #'cddr
                                        collect key))))))

(ert-deftest duet-rpc-a-path-is-completed-and-sent-absolute ()
  (duet-rpc-test-with-commands
      (list '("do" (("path" (:type "string" :format "path"))
                    ("other" (:anyOf [(:type "string" :format "path") (:type "null")]) t))
              (:name "my-do")))
    (let ((default-directory (file-name-directory (cadr duet-rpc-test-fake))))
      (duet-rpc-test-typing "<f6> fake_s TAB RET RET"
        (local-set-key (kbd "<f6>") 'my-do))
      (duet-rpc-test-idle)
      (should (equal (cadr duet-rpc-test-fake) (plist-get (duet-rpc-test-sent) :path)))
      (should-not (plist-member (duet-rpc-test-sent) :other)))))

(ert-deftest duet-rpc-a-remote-file-is-not-sent-to-a-local-method ()
  (duet-rpc-test-with-commands
      (list '("do" (("file" (:type "string"))) (:name "my-do" :sources (:file "file"))))
    (let ((buffer-file-name "/ssh:other:/tmp/x"))
      (should (string-match-p "is on another host"
                              (cadr (should-error (call-interactively 'my-do)
                                                  :type 'user-error)))))))

;;; commands-tests.el ends here
