;;; commands-tests.el --- Commands in Python, and what they do  -*- lexical-binding: t; -*-

;;; Commentary:

;; The fake server describes commands as the daemon does, and returns what
;; a test tells it to.  commands-daemon-tests.el has real ones.

;;; Code:

(require 'duet-rpc-test-helpers)

(defvar duet-rpc-test-directory-of-commands nil
  "Temporary directory with the files that the fake server reads.")

(defun duet-rpc-test-describe (&rest commands)
  "Make COMMANDS those of the fake server.
Each is (NAME PARAMS X-COMMAND); PARAMS are (NAME SCHEMA OPTIONAL)."
  (duet-rpc-test-write-json
   "commands.json"
   (vconcat
    (cl-loop
     for (name params command) in commands
     collect (list :name (concat "py." name)
                   :summary "Do it." :description "Do it.\n\nAs `told' in \\[quit]."
                   :params (vconcat
                            (cl-loop for (param schema optional) in params
                                     collect (list :name param :schema schema
                                                   :required (if optional :json-false t))))
                   :result (list :name "result" :schema '(:type "string"))
                   :x-source (list :file (cadr duet-rpc-test-fake) :line 3)
                   :x-command command)))))

(defun duet-rpc-test-write-json (file value)
  "Write VALUE to FILE, one of those that the fake server reads."
  (write-region (json-serialize value :null-object nil :false-object :json-false)
                nil (expand-file-name file duet-rpc-test-directory-of-commands) nil 'silent))

(defun duet-rpc-test-returns (value)
  "Make the commands of the fake server return VALUE."
  (duet-rpc-test-write-json "result.json" value))

(defmacro duet-rpc-test-with-commands (commands &rest body)
  "Run BODY in a buffer, with a fake server that has COMMANDS.
They are as in `duet-rpc-test-describe'.  `duet-rpc-mode' is on."
  (declare (indent 1) (debug t))
  `(let* ((duet-rpc-test-directory-of-commands
           (file-name-as-directory (make-temp-file "duet-rpc" t)))
          (user-emacs-directory duet-rpc-test-directory-of-commands)
          (duet-rpc--reported-problems nil)
          (kill-ring nil))
     (with-environment-variables
         (("FAKE_COMMANDS" (concat duet-rpc-test-directory-of-commands "commands.json"))
          ("FAKE_RESULT" (concat duet-rpc-test-directory-of-commands "result.json")))
       (apply #'duet-rpc-test-describe ,commands)
       (duet-rpc-test-returns "result")
       (transient-mark-mode 1)
       (unwind-protect
           (duet-rpc-test-with-fake
             (duet-rpc-mode 1)
             (duet-rpc-request "echo")
             (duet-rpc-test-refreshed)
             (save-window-excursion
               (with-temp-buffer
                 (buffer-enable-undo)
                 (set-window-buffer nil (current-buffer))
                 ,@body)))
         (duet-rpc-mode -1)
         (delete-directory duet-rpc-test-directory-of-commands t)))))

(defun duet-rpc-test-refreshed ()
  "Wait until the commands are those of the server."
  (accept-process-output nil 0.05)
  (duet-rpc-test-until (not duet-rpc--refreshing-commands))
  (duet-rpc-test-idle))

(defun duet-rpc-test-sent ()
  "Return the parameters that were sent to the last command, as Lisp."
  (json-parse-string
   (plist-get (car (last (cl-remove-if-not
                          (lambda (each) (string-prefix-p "py." (plist-get each :method)))
                          (append (duet-rpc-request "seen") nil))))
              :raw)
   :object-type 'plist :null-object nil))

(defconst duet-rpc-test-string '(:type "string"))

(defconst duet-rpc-test-sort
  '("sort" (("text" (:type "string")))
    (:name "my-sort" :key "C-c w" :result "replace" :sources (:text "region")))
  "A command that replaces the region.")

(defun duet-rpc-test-simple (&rest command)
  "Return the description of a command my-do without parameters, like COMMAND."
  (list "do" nil `(:name "my-do" ,@command)))


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


;;; Results

(ert-deftest duet-rpc-short-results-are-messages-and-long-ones-buffers ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (dolist (value '("short" 7 t))
      (duet-rpc-test-returns value)
      (should (equal (duet-rpc--format-value value) (duet-rpc-test-run 'my-do))))
    (dolist (value (list "two\nlines" (make-string 300 ?x) '(:a 1) [1 2]))
      (duet-rpc-test-returns value)
      (duet-rpc-test-run 'my-do)
      (should (equal value (duet-rpc-test-result)))
      (should (get-buffer-window "*duet-rpc result*")))
    (duet-rpc-test-returns nil)
    (should (equal "my-do: done" (duet-rpc-test-run 'my-do)))
    (duet-rpc-test-returns '(:empty nil :also [nil]))
    (duet-rpc-test-run 'my-do)
    (write-region "{\"empty\": {}, \"also\": [{}, null]}" nil
                  (concat duet-rpc-test-directory-of-commands "result.json") nil 'silent)
    (duet-rpc-test-run 'my-do)
    (with-current-buffer "*duet-rpc result*"
      (should (string-match-p "\"empty\": {}" (buffer-string)))
      (should (string-match-p "{},\n *null" (buffer-string))))))

(ert-deftest duet-rpc-a-list-of-objects-is-a-table ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (duet-rpc-test-returns [(:word "pear" :count 10) (:word "fig\nleaf" :count 9 :more [1])])
    (duet-rpc-test-run 'my-do)
    (with-current-buffer "*duet-rpc result*"
      (should (derived-mode-p 'tabulated-list-mode))
      (should (equal '("word" "count" "more")
                     (mapcar #'car (append tabulated-list-format nil))))
      (should (string-match-p "pear +10" (buffer-string)))
      (should (string-match-p "fig leaf +9 +\\[1\\]" (buffer-string)))
      (goto-char (point-min))
      (tabulated-list-sort 1)
      (goto-char (point-min))
      (should (looking-at-p " *fig")))))

(ert-deftest duet-rpc-a-text-may-have-a-major-mode ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (duet-rpc-test-returns '(:duet "text" :text "(car x)" :mode "lisp-mode"))
    (duet-rpc-test-run 'my-do)
    (with-current-buffer "*duet-rpc result*"
      (should (eq major-mode 'lisp-mode))
      (should (equal (buffer-string) "(car x)\n")))
    (dolist (mode '("no-such-mode" "kill-emacs" "auto-fill-mode"))
      (duet-rpc-test-returns (list :duet "text" :text "x" :mode mode))
      (duet-rpc-test-run 'my-do)
      (with-current-buffer "*duet-rpc result*"
        (should (eq major-mode 'text-mode))))))

(ert-deftest duet-rpc-an-image-can-be-saved-in-a-terminal ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (let ((file (concat duet-rpc-test-directory-of-commands "out.png"))
          (bytes "\x89PNG\r\n\x1a\n\0\xff"))
      (duet-rpc-test-returns (list :duet "image" :mime "image/png"
                                   :data (base64-encode-string (string-to-unibyte bytes))))
      (should (string-match-p "an image, which this Emacs cannot display"
                              (duet-rpc-test-run 'my-do)))
      (with-current-buffer "*duet-rpc image*"
        (should (string-match-p "image/png, 10 bytes" (buffer-string)))
        (cl-letf (((symbol-function 'read-file-name) (lambda (&rest _) file)))
          (push-button (point))))
      (should (equal (string-to-unibyte bytes)
                     (with-temp-buffer
                       (set-buffer-multibyte nil)
                       (insert-file-contents-literally file)
                       (buffer-string)))))))

(ert-deftest duet-rpc-insert-leaves-point-behind-the-result ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :result "insert"))
    (insert "ab")
    (goto-char 2)
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "aresultb"))
    (should (= 8 (point) (window-point))))
  (duet-rpc-test-with-commands
      (list (duet-rpc-test-simple :result "stream" :saveExcursion t))
    (insert "ab")
    (goto-char 2)
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "aresultb"))
    (should (= 2 (point)))))

(ert-deftest duet-rpc-replace-keeps-point-and-marks ()
  (duet-rpc-test-with-commands
      (list '("sort" (("text" (:type "string")))
              (:name "my-sort" :result "edit" :sources (:text "buffer"))))
    (insert "one two three\nfour five six\n")
    (goto-char 25)                      ; in front of "six"
    (let ((mark (copy-marker 5))
          (overlay (make-overlay 9 14)))
      (duet-rpc-test-returns "ONE two three\nfour FIVE six\n")
      (duet-rpc-test-run 'my-sort)
      (should (equal (buffer-string) "ONE two three\nfour FIVE six\n"))
      (should (looking-at-p "six"))
      (should (= 5 mark))
      (should (= 9 (overlay-start overlay)))
      ;; One undo takes it all back.
      (undo-boundary)
      (undo)
      (should (equal (buffer-string) "one two three\nfour five six\n")))))

(ert-deftest duet-rpc-replace-takes-no-time-with-a-large-text ()
  (with-temp-buffer
    (let (lines)
      (dotimes (i 20000)
        (push (format "%d line %d" (% (* i 7919) 20011) i) lines))
      (insert (string-join lines "\n") "\n")
      (goto-char (point-min))
      (forward-line 9000)
      (forward-char 3)
      (let ((sorted (concat (string-join (sort lines #'string<) "\n") "\n"))
            (begin (float-time)))
        (duet-rpc--replace-part (point-min) (point-max) sorted)
        (should (< (- (float-time) begin) 3))
        (should (equal sorted (buffer-string)))
        (should (equal '(9001 3) (list (line-number-at-pos) (current-column))))))))

(ert-deftest duet-rpc-edits-are-one-undo-step ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :result "edit"))
    (insert "hidden\nabc def ghi")
    (undo-boundary)
    (narrow-to-region 8 (point-max))
    (goto-char 12)
    (duet-rpc-test-returns [(:duet "edit" :edits [(:start 0 :end 3 :text "ABCD")])
                            (:duet "edit" :edits [(:start 8 :end 11 :text "")
                                                  (:start 4 :end 4 :text "é ")])])
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "ABCD é def "))
    (undo)
    (should (equal (buffer-string) "abc def ghi"))
    ;; What cannot be made is not made in part.
    (dolist (edits '([(:start 0 :end 1 :text "x") (:start 5 :end 99 :text "y")]
                     [(:start 0 :end 4 :text "x") (:start 2 :end 5 :text "y")]
                     [(:start -1 :end 4 :text "x")]))
      (duet-rpc-test-returns (list :duet "edit" :edits edits))
      (should (string-match-p "outside the text\\|overlap" (duet-rpc-test-run 'my-do)))
      (should (equal (buffer-string) "abc def ghi")))))

(ert-deftest duet-rpc-edits-of-a-region-count-from-its-beginning ()
  (duet-rpc-test-with-commands
      (list '("do" (("text" (:type "string"))) (:name "my-do" :sources (:text "region"))))
    (insert "abc def ghi")
    (goto-char 5)
    (push-mark 8 t t)
    (duet-rpc-test-returns '(:duet "edit" :edits [(:start 0 :end 1 :text "D")]))
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "abc Def ghi"))))

(ert-deftest duet-rpc-a-change-is-reviewed-first ()
  (dolist (returned '("one\nTWO\n" (:duet "edit" :edits [(:start 4 :end 7 :text "TWO")])))
    (duet-rpc-test-with-commands
        (list '("do" (("text" (:type "string")))
                (:name "my-do" :result "edit" :review t :sources (:text "buffer"))))
      (let ((buffer (current-buffer)))
        (insert "one\ntwo\n")
        (duet-rpc-test-returns returned)
        (duet-rpc-test-run 'my-do)
        (should (equal (buffer-string) "one\ntwo\n"))
        (with-current-buffer "*duet-rpc review of my-do*"
          (should (string-match-p "^-two\n\\+TWO$" (buffer-string)))
          (call-interactively (key-binding (kbd "C-c C-k"))))
        (should (equal (buffer-string) "one\ntwo\n"))
        (set-window-buffer nil buffer)
        (duet-rpc-test-run 'my-do)
        (with-current-buffer "*duet-rpc review of my-do*"
          (call-interactively (key-binding (kbd "C-c C-c"))))
        (should-not (get-buffer "*duet-rpc review of my-do*"))
        (should (equal (buffer-string) "one\nTWO\n"))
        ;; The text may change while it is being reviewed.
        (duet-rpc-test-returns (if (stringp returned) "" '(:duet "edit" :edits
                                                                 [(:start 0 :end 8 :text "")])))
        (duet-rpc-test-run 'my-do)
        (goto-char 2)
        (insert "!")
        (with-current-buffer "*duet-rpc review of my-do*"
          (should (string-match-p "has changed meanwhile"
                                  (duet-rpc-test-messages
                                    (call-interactively (key-binding (kbd "C-c C-c")))))))
        (should (equal (buffer-string) "o!ne\nTWO\n"))))))

(ert-deftest duet-rpc-a-goto-visits-the-line ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (let ((file (concat duet-rpc-test-directory-of-commands "x.txt"))
          (buffer (current-buffer)))
      (write-region "one\ntwo\nthree\n" nil file nil 'silent)
      (duet-rpc-test-returns (list :duet "goto" :file file :line 3 :column 2))
      (duet-rpc-test-run 'my-do)
      (with-current-buffer (window-buffer)
        (should (equal file buffer-file-name))
        (should (looking-at-p "ree"))
        (kill-buffer))
      ;; Who has gone elsewhere is not taken away.
      (set-window-buffer nil (get-buffer-create "*scratch*"))
      (with-current-buffer buffer
        (duet-rpc-test-run 'my-do))
      (should (equal "*scratch*" (buffer-name (window-buffer))))
      (should (get-file-buffer file))
      (kill-buffer (get-file-buffer file)))))


;;; A result for a place that is gone

(defmacro duet-rpc-test-meanwhile (command &rest body)
  "Run COMMAND, run BODY before its result arrives, and return the messages."
  (declare (indent 1) (debug t))
  `(duet-rpc-test-messages
     (call-interactively ,command)
     ,@body
     (duet-rpc-test-idle)))

(ert-deftest duet-rpc-nothing-lands-in-the-wrong-place ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (duet-rpc-test-returns "XXX")
    (cl-flet ((prepare () (let ((inhibit-read-only t))
                            (widen)
                            (erase-buffer)
                            (insert "abc def ghi")
                            (goto-char 5)
                            (push-mark 8 t t))))
      ;; The text before and behind it may change, and point may move.
      (prepare)
      (duet-rpc-test-meanwhile 'my-sort
        (goto-char 1)
        (insert "12")
        (goto-char (point-max))
        (insert "34"))
      (should (equal (buffer-string) "12abc XXX ghi34"))
      (should (eobp))
      ;; It may be changed and changed back.
      (prepare)
      (duet-rpc-test-meanwhile 'my-sort
        (goto-char 6) (insert "!") (delete-char -1))
      (should (equal (buffer-string) "abc XXX ghi"))
      ;; It may be out of sight.
      (prepare)
      (duet-rpc-test-meanwhile 'my-sort
        (narrow-to-region 1 3))
      (should (equal (buffer-string) "ab"))
      (widen)
      (should (equal (buffer-string) "abc XXX ghi"))
      ;; But what was sent has to be there.
      (prepare)
      (should (string-match-p
               "my-sort: the text in .* has changed meanwhile; the result is in"
               (duet-rpc-test-meanwhile 'my-sort
                 (goto-char 6) (insert "!"))))
      (should (equal (buffer-string) "abc d!ef ghi"))
      (should (equal "XXX" (duet-rpc-test-result)))
      (prepare)
      (should (string-match-p "is read-only; the result is in"
                              (duet-rpc-test-meanwhile 'my-sort
                                (setq buffer-read-only t))))
      (should (equal (buffer-string) "abc def ghi"))
      (setq buffer-read-only nil)
      ;; Part of it may be read-only.
      (prepare)
      (should (string-match-p "read-only; the result is in"
                              (duet-rpc-test-meanwhile 'my-sort
                                (put-text-property 5 7 'read-only t))))
      (should (equal (buffer-string) "abc def ghi"))
      (let ((inhibit-read-only t)) (erase-buffer)))
    (let ((gone (generate-new-buffer "gone")))
      (with-current-buffer gone
        (insert "abc")
        (should (string-match-p "its buffer has been killed"
                                (duet-rpc-test-meanwhile 'my-sort
                                  (kill-buffer gone))))))))

(ert-deftest duet-rpc-an-insertion-needs-its-place ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :result "insert"))
    (insert "abc")
    (goto-char 2)
    (duet-rpc-test-meanwhile 'my-do (insert "typed"))
    (should (equal (buffer-string) "aresulttypedbc"))
    (erase-buffer)
    (insert "abc")
    (goto-char 2)
    (should (string-match-p "the place for it in .* has been deleted"
                            (duet-rpc-test-meanwhile 'my-do (erase-buffer))))
    (should (equal (buffer-string) ""))
    (should-not (cl-remove t before-change-functions))))

(ert-deftest duet-rpc-edits-need-the-text-they-are-about ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (insert "abc")
    (duet-rpc-test-returns '(:duet "edit" :edits [(:start 0 :end 1 :text "X")]))
    (should (string-match-p "has changed meanwhile"
                            (duet-rpc-test-meanwhile 'my-do (insert "d"))))
    (should (equal (buffer-string) "abcd"))
    (should (string-match-p "\"edits\"" (with-current-buffer "*duet-rpc result*"
                                          (buffer-string))))))


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

;;; commands-tests.el ends here
