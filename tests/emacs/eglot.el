;;; eglot.el --- eglot with a server behind the daemon  -*- lexical-binding: t; -*-

;;; Commentary:

;; Functions that the forms of test_eglot.py use.  The environment says
;; which project to visit.

;;; Code:

(require 'eglot)
(load (getenv "DUET_RPC_EL") nil t)

(setq duet-rpc-program (getenv "DUET_RPC_PYZ")
      duet-rpc-timeout 60
      eglot-autoreconnect t
      eglot-connect-timeout 60
      eglot-sync-connect 60
      create-lockfiles nil)
(duet-rpc-eglot 'python-mode "py")

(defmacro test-until (condition)
  "Wait until CONDITION holds and return its value."
  `(with-timeout (60 (error "Never: %S" ',condition))
     (let (value)
       (while (not (setq value ,condition))
         (accept-process-output nil 0.02))
       value)))

(defun test-visit (&optional directory)
  "Visit a.py in DIRECTORY, or in the project, with eglot."
  (find-file (expand-file-name "a.py" (or directory (getenv "PROJECT"))))
  (apply #'eglot (eglot--guess-contact))
  (test-until (eglot-managed-p)))

(defun test-go-to (text)
  "Go to the end of the last TEXT in this buffer."
  (goto-char (point-max))
  (search-backward text)
  (goto-char (match-end 0)))

(defun test-diagnostics ()
  "Return whether the undefined name is among the diagnostics."
  (flymake-start)
  (cl-some (lambda (each) (string-match-p "undefined_name" (flymake-diagnostic-text each)))
           (flymake-diagnostics)))

(defun test-hover ()
  "Return what the server says about the function at its call."
  (test-go-to "greet")
  (backward-char)
  (let (shown)
    (eglot-hover-eldoc-function (lambda (text &rest _) (setq shown text)))
    (test-until shown)))

(defun test-pid ()
  "Return the process id of the server."
  (plist-get (aref (plist-get (duet-rpc-request "gateway/status") :backends) 0) :pid))

(defun test-line ()
  "Return the text of this line."
  (buffer-substring-no-properties (line-beginning-position) (line-end-position)))

;;; eglot.el ends here
