;;; duet-rpc-test-helpers.el --- Helpers for all tests  -*- lexical-binding: t; -*-

;;; Commentary:

;; The environment says what to test: DUET_RPC_EL is the library and
;; DUET_RPC_PYZ the daemon.

;;; Code:

(require 'cl-lib)
(require 'ert)

(defconst duet-rpc-test-directory
  (file-name-directory (or load-file-name buffer-file-name)))
(defconst duet-rpc-test-top (expand-file-name "../../" duet-rpc-test-directory))

(defconst duet-rpc-test-pyz (getenv "DUET_RPC_PYZ"))
(defconst duet-rpc-test-fake
  (list "python3" (expand-file-name "fake_server.py" duet-rpc-test-directory)))

(load (getenv "DUET_RPC_EL") nil t)
(setq create-lockfiles nil
      make-backup-files nil)
;; The library is not compiled here, so a test can redefine a primitive
;; without a trampoline, which would take seconds to compile.
(defvar comp-enable-subr-trampolines)
(defvar native-comp-enable-subr-trampolines)
(setq comp-enable-subr-trampolines nil
      native-comp-enable-subr-trampolines nil)

(defmacro duet-rpc-test-with (program &rest body)
  "Run BODY with a fresh server, PROGRAM; stop it afterwards.
Fail if a call is still pending then, or a process still running."
  (declare (indent 1) (debug t))
  `(let ((duet-rpc--servers (make-hash-table :test #'equal))
         (duet-rpc-program ,program)
         (duet-rpc-timeout 10)
         (before (process-list)))
     (unwind-protect
         (progn
           ,@body
           (maphash (lambda (_ server)
                      (duet-rpc-test-until
                       (= 0 (hash-table-count (duet-rpc--server-pending server)))))
                    duet-rpc--servers))
       (maphash (lambda (_ server) (duet-rpc--stop server)) duet-rpc--servers))
     (duet-rpc-test-until
      (null (cl-remove-if (lambda (process) (tramp-test-process-p process))
                          (cl-set-difference (process-list) before))))))

(defun tramp-test-process-p (process)
  "Return non-nil if PROCESS is a shell that TRAMP keeps open."
  (string-prefix-p "*tramp/" (process-name process)))

(defmacro duet-rpc-test-with-pyz (&rest body)
  "Run BODY with the real daemon."
  (declare (indent 0) (debug t))
  `(duet-rpc-test-with duet-rpc-test-pyz ,@body))

(defmacro duet-rpc-test-with-fake (&rest body)
  "Run BODY with the fake server."
  (declare (indent 0) (debug t))
  `(duet-rpc-test-with duet-rpc-test-fake ,@body))

(defmacro duet-rpc-test-until (condition &optional seconds)
  "Wait until CONDITION holds; fail after SECONDS or else 30."
  `(with-timeout (,(or seconds 30) (ert-fail '(never ,condition)))
     (while (not ,condition)
       (accept-process-output nil 0.02))))

(defmacro duet-rpc-test-messages (&rest body)
  "Run BODY and return all messages it showed, in one string."
  (declare (indent 0) (debug t))
  `(let ((shown nil))
     (cl-letf* ((real (symbol-function 'message))
                ((symbol-function 'message)
                 (lambda (format &rest args)
                   (when format (push (apply #'format-message format args) shown))
                   (apply real format args))))
       ,@body)
     (string-join (nreverse shown) "\n")))

(defmacro duet-rpc-test-messages-for (seconds &rest body)
  "Run BODY and return all messages shown until SECONDS later, in one string."
  (declare (indent 1) (debug t))
  `(duet-rpc-test-messages
     ,@body
     (let ((end (+ ,seconds (float-time))))
       (while (< (float-time) end)
         (accept-process-output nil 0.05)))))

(defmacro duet-rpc-test-quitting (seconds &rest body)
  "Run BODY and quit, as by \\[keyboard-quit], after SECONDS.
Return `quit' if that ended BODY, or else what BODY returned."
  (declare (indent 1) (debug t))
  `(let ((timer (run-with-timer ,seconds nil (lambda () (setq quit-flag t)))))
     (unwind-protect (condition-case nil (progn ,@body) (quit 'quit))
       (cancel-timer timer))))

;; What the manual quotes.

(defun duet-rpc-test-page (name language)
  "Return the blocks in LANGUAGE on the page NAME of the manual, as one string."
  (with-temp-buffer
    (insert-file-contents (expand-file-name (concat "docs/" name) duet-rpc-test-top))
    (let (blocks)
      (while (re-search-forward (concat "^```" language "\n\\(\\(?:.*\n\\)*?\\)```$") nil t)
        (push (match-string 1) blocks))
      (string-join (nreverse blocks) "\n"))))

(defun duet-rpc-test-quoted (page beginning &rest names)
  "Return a regexp for the message on PAGE of the manual that starts with BEGINNING.
Any number may stand for a number in it, and any text for three dots.  NAMES are
pairs of a name on the page and the one in the test."
  (with-temp-buffer
    (insert-file-contents (expand-file-name (concat "docs/" page) duet-rpc-test-top))
    (re-search-forward (concat "\\(?:^\\|`\\)\\(" (regexp-quote beginning) "[^`]*?\\)\\(?:`\\|\n```\\)"))
    (let ((text (replace-regexp-in-string "\n *" " " (match-string 1))))
      (pcase-dolist (`(,old . ,new) names)
        (setq text (string-replace old new text)))
      (setq text (regexp-quote text))
      (setq text (replace-regexp-in-string "[0-9]+" "[0-9.]+" text t t))
      (replace-regexp-in-string "\\\\\\.\\\\\\.\\\\\\.\\|…" ".*" text t t))))

(defun duet-rpc-test-pending ()
  "Return the number of pending calls of this host's daemon."
  (hash-table-count (duet-rpc--server-pending (duet-rpc--server))))

(defun duet-rpc-test-pid ()
  "Return the process id of this host's daemon."
  (process-id (duet-rpc--server-process (duet-rpc--server))))

(defun duet-rpc-test-seen (method)
  "Return the messages with METHOD that the fake server has received."
  (cl-remove-if-not (lambda (message) (equal (plist-get message :method) method))
                    (append (duet-rpc-request "seen") nil)))

(defmacro duet-rpc-test-typing (keys &rest body)
  "Run BODY in this buffer with KEYS as input; answer y to questions."
  (declare (indent 1) (debug t))
  `(let ((map (make-sparse-keymap)))
     (define-key map (kbd "<f5>") (lambda () (interactive) ,@body))
     (save-window-excursion
       (set-window-buffer nil (current-buffer))
       (let ((minor-mode-overriding-map-alist (list (cons t map))))
         (cl-letf (((symbol-function 'y-or-n-p) #'always))
           (execute-kbd-macro (vconcat (kbd "<f5>") (kbd ,keys))))))))

(defun duet-rpc-test-run (command)
  "Run COMMAND, once it is there, as the user does; return the messages until it is done."
  (duet-rpc-test-until (commandp command))
  (duet-rpc-test-messages
    (call-interactively command)
    (duet-rpc-test-idle)))

(defun duet-rpc-test-result ()
  "Return what is in the result buffer: a text, or JSON as Lisp."
  (with-current-buffer "*duet-rpc result*"
    (if (derived-mode-p 'js-mode 'js-json-mode 'js-base-mode)
        (json-parse-string (buffer-string) :object-type 'plist :null-object nil
                           :false-object :json-false)
      (string-remove-suffix "\n" (buffer-string)))))

(defun duet-rpc-test-call (method params &optional how)
  "Do what `duet-rpc-call' does, and wait for the result."
  (duet-rpc-call method params how t))

(defun duet-rpc-test-idle ()
  "Wait until no command is running and all results have been delivered."
  (duet-rpc-test-until (and (null (duet-rpc--running-calls)) (null duet-rpc--queue))))

(defvar duet-rpc-test-got nil
  "Result that a command of a test received.")

(defun duet-rpc-test-backend (name framing &rest habits)
  "Return the configuration of a backend NAME with FRAMING and HABITS."
  (format "[backends.%s]\nframing = %S\ndialect = %S\ncommand = [%s]\n"
          name framing (if (member "mcp" habits) "mcp" "plain")
          (mapconcat (lambda (word) (format "%S" word))
                     `("python3" ,(expand-file-name "../backend.py" duet-rpc-test-directory)
                       ,framing ,@habits)
                     ", ")))

(provide 'duet-rpc-test-helpers)
;;; duet-rpc-test-helpers.el ends here
