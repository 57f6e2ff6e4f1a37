;;; interactive-tests.el --- What the user sees  -*- lexical-binding: t; -*-

;;; Code:

(require 'duet-rpc-test-helpers)
(defvar comp-enable-subr-trampolines)
(defvar native-comp-enable-subr-trampolines)

(ert-deftest duet-rpc-call-asks-for-every-kind-of-parameter ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (duet-rpc-test-typing
          (concat "every.k TAB RET "        ; the method
                  "hi TAB RET "             ; a choice
                  "x RET DEL 0 RET DEL 7 RET " ; not a number, too small, valid
                  "hello RET "              ; a text
                  "[1 RET ] RET "           ; JSON, corrected
                  "RET "                    ; a default
                  "true RET")               ; an optional boolean
        (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result)
                     '( :level "high" :sure t :count 7 :text "hello" :items [1]
                        :loud t)))
      (should (equal (car duet-rpc-method-history) "every.kindOf")))))

(ert-deftest duet-rpc-call-asks-for-rare-kinds ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (duet-rpc-test-typing
          (concat "odd.kinds RET "
                  "{} RET "                 ; an object without members
                  "RET "                    ; null for a number
                  "RET "                    ; null for a choice
                  "RET "                    ; null for a boolean
                  "word RET "               ; a text or a number: a text
                  "12 RET "                 ; and a number
                  "{\"a\":[{}]} RET "       ; anything
                  "RET 2 RET "              ; a choice that must be made
                  "[\"x\"] RET "
                  "2026-01-31 RET "
                  "RET RET RET")            ; all that may be left out
        (call-interactively #'duet-rpc-call))
      (should (equal (with-current-buffer "*duet-rpc result*"
                       (replace-regexp-in-string "[ \n]" "" (buffer-string)))
                     (concat "{\"object\":{},\"nullNumber\":null,\"nullChoice\":null,"
                             "\"nullFlag\":null,\"either\":\"word\",\"either2\":12,"
                             "\"anything\":{\"a\":[{}]},\"choice\":2,"
                             "\"names\":[\"x\"],\"day\":\"2026-01-31\"}")))
      (should (string-prefix-p
               (concat "{\"object\": {}, \"nullNumber\": null, \"nullChoice\": null, "
                       "\"nullFlag\": null, \"either\": \"word\", \"either2\": 12, "
                       "\"anything\": {\"a\": [{}]}, \"choice\": 2, "
                       "\"names\": [\"x\"], \"day\": \"2026-01-31\"")
               (plist-get (car (duet-rpc-test-seen "odd.kinds")) :raw))))))

(ert-deftest duet-rpc-prompts-say-what-they-want ()
  (duet-rpc-test-with-fake
    (let (prompts)
      (cl-flet ((note (prompt &rest _) (push prompt prompts) ""))
        (cl-letf (((symbol-function 'read-string) #'note)
                  ((symbol-function 'completing-read) #'note)
                  ((symbol-function 'read-from-minibuffer) #'note))
          (mapc (lambda (param)
                  (unless (member (plist-get param :name) '("object" "choice" "names"))
                    (duet-rpc--read-param param)))
                (plist-get (duet-rpc--find-description "odd.kinds") :params))))
      (should (equal (nreverse prompts)
                     '("nullNumber (integer or null, empty for null): "
                       "nullChoice (a|b or null, empty for null): "
                       "nullFlag (boolean or null, empty for null): "
                       "either (string or integer): "
                       "either2 (string or integer): "
                       "anything (any): "
                       "day (date): "
                       "fill_column (integer, default 70): "
                       "aB (integer, optional): "
                       "a_b (integer or null, optional): "))))))

(ert-deftest duet-rpc-call-annotates-the-methods ()
  (duet-rpc-test-with-pyz
    (let (table)
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_ collection &rest _) (setq table collection) "version")))
        (duet-rpc--read-method "Call: " (duet-rpc--methods)))
      (let ((annotate (alist-get 'annotation-function
                                 (cdr (funcall table "" nil 'metadata)))))
        (should (member "setLogLevel" (all-completions "" table)))
        (should (string-match-p "Set how much is logged.*(level)"
                                (funcall annotate "setLogLevel")))
        (should-not (funcall annotate "other"))))))

(ert-deftest duet-rpc-call-offers-region-and-buffer ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (insert "one two")
      (duet-rpc-test-typing "upcase RET C-c C-b" (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result) "ONE TWO"))
      (transient-mark-mode 1)
      (goto-char 4)
      (push-mark 1 t t)
      (duet-rpc-test-typing "upcase RET RET" (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result) "ONE"))
      ;; With a prefix argument the region is replaced.
      (goto-char 4)
      (push-mark 1 t t)
      (duet-rpc-test-call "upcase" '(:text "one") 'replace)
      (should (equal (buffer-string) "ONE two"))
      (deactivate-mark)
      (goto-char (point-max))
      (duet-rpc-test-call "upcase" '(:text "!a") 'insert)
      (should (equal (buffer-string) "ONE two!A")))))

(ert-deftest duet-rpc-call-knows-what-the-prefix-means ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (insert "abc")
      (duet-rpc-test-typing "upcase RET x RET"
        (let ((current-prefix-arg '(4)))
          (call-interactively #'duet-rpc-call)))
      (should (equal (buffer-string) "abcX"))
      (transient-mark-mode 1)
      (push-mark 1 t t)
      (duet-rpc-test-typing "upcase RET RET"
        (let ((current-prefix-arg '(4)))
          (call-interactively #'duet-rpc-call)))
      (should (equal (buffer-string) "ABCX")))))

(ert-deftest duet-rpc-call-again-repeats ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (duet-rpc-test-call "upcase" '(:text "a") 'insert)
      (duet-rpc-call-again)
      (should (equal (buffer-string) "AA"))
      ;; What lies between point and mark is not replaced unless it is marked.
      (transient-mark-mode 1)
      (push-mark 1 t t)
      (duet-rpc-test-call "upcase" '(:text "b") 'replace)
      (should (equal (buffer-string) "B"))
      (insert "cd")
      (deactivate-mark)
      (should-error (duet-rpc-call-again) :type 'user-error)
      (should (equal (buffer-string) "Bcd"))
      (let ((duet-rpc--last-call nil))
        (should-error (duet-rpc-call-again) :type 'user-error)))))

(ert-deftest duet-rpc-call-respects-a-read-only-buffer ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (with-temp-buffer
      (setq buffer-read-only t)
      (should-error (duet-rpc-test-call "upcase" '(:text "a") 'insert)
                    :type 'buffer-read-only)
      (should-not (duet-rpc-test-seen "upcase")))))

(ert-deftest duet-rpc-call-checks-for-a-read-only-buffer-first ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (setq buffer-read-only t)
      (should-error (let ((current-prefix-arg '(4)))
                      (call-interactively #'duet-rpc-call))
                    :type 'buffer-read-only))))

(ert-deftest duet-rpc-call-inserts-where-it-was-called ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (with-temp-buffer
      (insert "one two")
      (goto-char 4)
      (push-mark 1 t t)
      (transient-mark-mode 1)
      ;; A timer edits the buffer meanwhile.
      (let ((buffer (current-buffer)))
        (run-with-timer 0.2 nil (lambda ()
                                  (with-current-buffer buffer
                                    (save-excursion
                                      (goto-char (point-min))
                                      (insert "zero "))))))
      (duet-rpc-test-call "progress" '(:steps 2 :pause 0.3) 'replace)
      (should (equal (buffer-string) "zero done two")))
    (let ((buffer (generate-new-buffer "gone")) (other (current-buffer)))
      (run-with-timer 0.2 nil (lambda () (kill-buffer buffer)))
      (should (string-match-p
               "progress: its buffer has been killed; the result is in \\*duet-rpc result\\*"
               (duet-rpc-test-messages
                 (with-current-buffer buffer
                   (duet-rpc-test-call "progress" '(:steps 2 :pause 0.3) 'insert)))))
      (should (equal (duet-rpc-test-result) "done"))
      (should (equal other (current-buffer))))))

(ert-deftest duet-rpc-call-shows-errors-plainly ()
  (duet-rpc-test-with-fake
    (should (equal (should-error (duet-rpc-test-call "noSuchMethod" nil))
                   '(user-error "noSuchMethod: Method not found; is its file in \
~/.config/duet-rpc/methods/? (M-x duet-rpc-load-file loads any other file, \
M-x duet-rpc-list-methods lists all methods)")))))

(ert-deftest duet-rpc-call-shows-progress ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (let* ((comp-enable-subr-trampolines t) ; Emacs's own code shows it
           (native-comp-enable-subr-trampolines t)
           (shown (duet-rpc-test-messages
                    (duet-rpc-test-call "progress" '(:steps 4 :pause 0.3) 'message))))
      (should (string-match-p "progress\\.\\.\\." shown))
      (should (string-match-p "done" shown)))))

(ert-deftest duet-rpc-call-works-with-described-methods ()
  (with-environment-variables (("FAKE_DISCOVER" "describe"))
    (duet-rpc-test-with-fake
      (let ((method (duet-rpc--find-description "upcase")))
        (should (equal (plist-get method :summary) "Return the text in capitals."))
        (should (equal (plist-get method :params)
                       [(:name "text" :required t :schema (:type "string"))])))
      (duet-rpc-test-typing "upcase RET abc RET" (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result) "ABC")))))

(ert-deftest duet-rpc-call-works-without-descriptions ()
  (with-environment-variables (("FAKE_DISCOVER" "none") ("FAKE_NAME" "other"))
    (duet-rpc-test-with-fake
      (duet-rpc-test-typing "upcase RET 3 RET DEL {\"text\": SPC \"x\"} RET"
        (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result) "X"))
      (duet-rpc-test-typing "nothing RET RET" (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result) nil)))))

(ert-deftest duet-rpc-parses-signatures ()
  (should (equal (duet-rpc--parse-signature "level: string")
                 '(:name "level" :required t :schema (:type "string"))))
  (should (equal (duet-rpc--parse-signature "top: integer = 10")
                 '(:name "top" :required :json-false :schema (:type "integer"))))
  (should (equal (duet-rpc--parse-signature "x")
                 '(:name "x" :required t :schema (:type "any")))))

(ert-deftest duet-rpc-show-handles-every-result ()
  (dolist (result (list nil t :json-false 3 "a\nb" [1 2] '(:a (:b "é"))))
    (duet-rpc--show-result result "m")
    (with-current-buffer "*duet-rpc result*"
      (should (eq (stringp result) (and (derived-mode-p 'text-mode) t))))
    (should (equal (duet-rpc-test-result) result))))

(ert-deftest duet-rpc-shows-what-is-large-without-freezing ()
  (duet-rpc-test-with-fake
    (let ((shown (duet-rpc-test-messages
                   (duet-rpc-test-call "big" '(:bytes 5000000) 'message))))
      (should (< (length shown) 2200))
      (should (string-match-p "é\\.\\.\\. (2000 of 2500000 characters; M-x duet-rpc-call" shown)))
    (dolist (size '(5000000 10))
      (duet-rpc-test-call "big" (list :bytes size))
      (with-current-buffer "*duet-rpc result*"
        (should (= (buffer-size) (+ (/ size 2) 1)))
        (should (eq (> size 10) (eq major-mode 'fundamental-mode)))
        (should (eq (> size 10) truncate-lines))
        (should view-mode)))))

(ert-deftest duet-rpc-shows-numbers-as-people-write-them ()
  (duet-rpc-test-with-fake
    (duet-rpc-request "echo")
    (dolist (number '("0.1" "1180591620717411303424" "-7" "[0.1,2]"))
      (should (equal number
                     (duet-rpc-test-messages
                       (duet-rpc-test-call "raw" (list :json number) 'message)))))
    (duet-rpc-test-call "raw" '(:json "{\"a\": [0.1, 1180591620717411303424]}"))
    (should (equal "{\n  \"a\": [\n    0.1,\n    1180591620717411303424\n  ]\n}\n"
                   (with-current-buffer "*duet-rpc result*" (buffer-string))))))

(ert-deftest duet-rpc-shows-what-is-nested-deeply ()
  (dolist (json (list (concat (make-string 1500 ?\[) (make-string 1500 ?\]))
                      (concat (mapconcat (lambda (_) "{\"a\":") (make-list 1500 0) "")
                              "1" (make-string 1500 ?\}))))
    (duet-rpc-test-with-fake
      (duet-rpc-test-call "raw" (list :json json))
      (should (equal (concat json "\n")
                     (with-current-buffer "*duet-rpc result*" (buffer-string)))))))


;;; Commands defined by the user

(duet-rpc-define-command duet-rpc-test-upcase "upcase"
  "Put the region in capitals."
  :params (:text region) :result replace :wait t)
(duet-rpc-define-command duet-rpc-test-upcase-buffer "upcase"
  :params (:text buffer) :result replace :wait t)
(duet-rpc-define-command duet-rpc-test-upcase-symbol "upcase"
  :params (:text symbol) :async nil)
(duet-rpc-define-command duet-rpc-test-prompt "every.kindOf"
  :params (:level prompt :text "fixed" :n 3) :result buffer)
(duet-rpc-define-command duet-rpc-test-function "upcase"
  :params (:text prompt) :result (lambda (result) (setq duet-rpc-test-got result)))

(defun duet-rpc-test-take (result)
  "Keep RESULT for a test to see."
  (setq duet-rpc-test-got result))
(duet-rpc-define-command duet-rpc-test-named "upcase"
  :params (:text "named") :result duet-rpc-test-take :wait t)
(duet-rpc-define-command duet-rpc-test-sharp "upcase"
  :params (:text "sharp") :result #'duet-rpc-test-take :wait t)

(ert-deftest duet-rpc-define-command-takes-the-name-of-a-function ()
  (duet-rpc-test-with-fake
    (duet-rpc-test-named)
    (should (equal duet-rpc-test-got "NAMED"))
    (duet-rpc-test-sharp)
    (should (equal duet-rpc-test-got "SHARP"))
    (should (string-match-p ":result is mesage, which is not a function"
                            (cadr (should-error
                                   (eval '(duet-rpc-define-command duet-rpc-test-typo "upcase"
                                            :params (:text "typo") :result mesage)
                                         t)))))))

(ert-deftest duet-rpc-an-empty-text-can-be-chosen ()
  (let ((param '(:name "x" :required t :schema (:enum ["" "a"]))))
    (with-temp-buffer
      (let (got)
        (duet-rpc-test-typing "RET" (setq got (duet-rpc--read-param param)))
        (should (equal got ""))
        (duet-rpc-test-typing "a RET" (setq got (duet-rpc--read-param param)))
        (should (equal got "a"))))))

(ert-deftest duet-rpc-define-command-makes-commands ()
  (duet-rpc-test-with-fake
    (with-temp-buffer
      (should (commandp 'duet-rpc-test-upcase))
      (should (equal (documentation 'duet-rpc-test-upcase)
                     "Put the region in capitals."))
      (insert "one two three")
      (transient-mark-mode 1)
      (goto-char 8)
      (push-mark 5 t t)
      (duet-rpc-test-upcase)
      (should (equal (buffer-string) "one TWO three"))
      (deactivate-mark)
      (goto-char (point-max))
      (should (string-match-p "^THREE$" (duet-rpc-test-messages
                                          (duet-rpc-test-upcase-symbol))))
      (duet-rpc-test-upcase-buffer)
      (should (equal (buffer-string) "ONE TWO THREE"))
      (duet-rpc-test-typing "low RET" (duet-rpc-test-prompt))
      (should (equal (duet-rpc-test-result) '(:level "low" :text "fixed" :n 3)))
      (duet-rpc-test-typing "x RET" (duet-rpc-test-function))
      (should (equal duet-rpc-test-got "X"))
      (erase-buffer)
      (should-error (duet-rpc-test-upcase-symbol) :type 'user-error))))

(ert-deftest duet-rpc-define-command-refuses-nonsense ()
  (dolist (args '((:parms (:text region)) (:params (:text prompt) :result replace)
                  (:params '(:text region)) (:params (text region)) (:params text)
                  (:result 'insert) (:result :insert) (:result "insert")
                  (:timeout "soon") (:key [f5]) (:params (:text prompt) :wiat t)))
    (should-error (macroexpand `(duet-rpc-define-command my-x "upcase" ,@args)))))

;;; Lists, help and status

(ert-deftest duet-rpc-list-methods-lists-them ()
  (duet-rpc-test-with-fake
    (save-window-excursion
      (duet-rpc-list-methods)
      (goto-char (point-min))
      (should (search-forward "upcase"))
      (should (string-match-p "text +Return the text in capitals"
                              (buffer-substring (line-beginning-position)
                                                (line-end-position))))
      (duet-rpc-test-typing "abc RET" (duet-rpc-methods-call))
      (should (equal (duet-rpc-test-result) "ABC"))
      (set-buffer "*duet-rpc methods*")
      (revert-buffer)
      (goto-char (point-min))
      (search-forward "every.kindOf")
      (duet-rpc-methods-describe)
      (with-current-buffer "*Help*"
        (dolist (text '("Its answer is what it was given." "level: low|high"
                        "ratio: number or null, default 0.5" "loud: boolean, default false"))
          (should (string-match-p (regexp-quote text) (buffer-string)))))
      (set-buffer "*duet-rpc methods*")
      (should-error (duet-rpc-methods-find-source) :type 'user-error)
      (goto-char (point-min))
      (search-forward "upcase")
      (duet-rpc-methods-find-source)
      (should (equal (file-name-nondirectory buffer-file-name) "fake_server.py"))
      (should (= (line-number-at-pos) 3))
      (kill-buffer))))

(ert-deftest duet-rpc-a-description-repeats-nothing ()
  (duet-rpc-test-with-pyz
    (save-window-excursion
      (duet-rpc-list-methods t)
      (goto-char (point-min))
      (search-forward "setLogLevel")
      (duet-rpc-methods-describe)
      (with-current-buffer "*Help*"
        (should (= 1 (how-many "Set how much is logged" (point-min) (point-max))))))))

(ert-deftest duet-rpc-log-shows-stderr ()
  (duet-rpc-test-with-pyz
    (save-window-excursion
      (duet-rpc-request "setLogLevel" '(:level "debug"))
      (duet-rpc-request "version")
      (duet-rpc-show-log)
      (should (equal (buffer-name) "*duet-rpc log*"))
      (duet-rpc-test-until (string-match-p "DEBUG.*version" (buffer-string))))))

(defun duet-rpc-test-doctor-done-p ()
  "Return non-nil if all checks in this buffer have a result."
  (not (string-match-p "^…" (buffer-string))))

(ert-deftest duet-rpc-doctor-shows-everything-without-waiting ()
  (duet-rpc-test-with-pyz
    (duet-rpc-request "version")
    (duet-rpc-test-until
     (string-match-p "INFO" (duet-rpc--stderr-tail (duet-rpc--server) 5)))
    (save-window-excursion
      (let ((begin (float-time)))
        (duet-rpc-doctor)
        (should (< (- (float-time) begin) 0.5)))
      (should (string-match-p "^… daemon +ready, [0-9] calls pending" (buffer-string)))
      (should (bobp))
      (duet-rpc-test-until (duet-rpc-test-doctor-done-p) 30)
      (dolist (line (list
                     ;; As in a terminal.
                     "^✓ Python +3\\." "^✓ program +0\\.1\\.0, " "^✓ config +no file"
                     "^✓ methods +no user methods"
                     ;; What only Emacs knows.
                     (concat "^✓ Emacs +" (regexp-quote emacs-version) ", /")
                     "^✓ jsonrpc.el +1\\.0\\.[0-9]+, "
                     "^✓ duet-rpc.el +0\\.1\\.0, .*duet-rpc\\.el"
                     "^✓ load path +has no duet-rpc\\.el"
                     "^✓ command +python3 .*duet-rpc\\.pyz rpc --debug"
                     "^✓ options +duet-rpc-program: "
                     "^✓ daemon +ready, version 0\\.1\\.0, protocol 2\\.0, .* after [0-9.]+ ms"
                     "^✓ methods +[67]: initialize"
                     "^✓ backends +none; all methods run in the daemon"
                     "^✓ stderr +.*INFO"))
        (should (string-match-p line (buffer-string))))
      (revert-buffer)
      (should (string-match-p "^… daemon +ready" (buffer-string)))
      (duet-rpc-test-until (duet-rpc-test-doctor-done-p) 30))))

(ert-deftest duet-rpc-doctor-never-waits ()
  (duet-rpc-test-with '("sleep" "30")
    (let ((duet-rpc-timeout 1))
      (save-window-excursion
        (let ((begin (float-time)))
          (duet-rpc-doctor)
          (should (< (- (float-time) begin) 1)))
        (should (string-match-p "^… daemon +starting, 2 calls pending" (buffer-string)))
        (duet-rpc-test-until
         (string-match-p "^✗ daemon +starting: no answer\n  fix: " (buffer-string)))
        (should (string-match-p "^✓ program +cannot be checked" (buffer-string)))
        (duet-rpc-test-until (duet-rpc-test-doctor-done-p))))
    (duet-rpc-stop)))

(ert-deftest duet-rpc-doctor-shows-what-is-broken ()
  (duet-rpc-test-with "/nowhere/duet-rpc.pyz"
    (save-window-excursion
      (duet-rpc-doctor)
      (should (string-match-p "^✗ program +Cannot find" (buffer-string)))
      (should (string-match-p "^✗ command +no program to start" (buffer-string)))
      (should (string-match-p "^✗ daemon +stopped: Cannot find" (buffer-string)))
      (should (duet-rpc-test-doctor-done-p))))
  (duet-rpc-test-with-pyz
    (save-window-excursion
      (let ((duet-rpc-python "no-such-python"))
        (duet-rpc-doctor))
      (should (string-match-p "^✗ program +.*no-such-python" (buffer-string)))
      (should (duet-rpc-test-doctor-done-p))
      (let ((duet-rpc-timeout "soon"))
        (duet-rpc-doctor))
      (should (string-match-p "^✗ options +.*duet-rpc-timeout' is \"soon\"" (buffer-string)))
      (should (duet-rpc-test-doctor-done-p))))
  (duet-rpc-test-with '("sh" "-c" "sleep 0.2; echo broken >&2; exit 3")
    (save-window-excursion
      (duet-rpc-doctor)
      (duet-rpc-test-until (duet-rpc-test-doctor-done-p))
      (should (string-match-p "^✓ stderr +broken" (buffer-string)))
      (should (string-match-p "exited with code 3" (buffer-string))))))

;;; interactive-tests.el ends here
