;;; duet-rpc-test-commands.el --- A server with commands, for tests  -*- lexical-binding: t; -*-

;;; Commentary:

;; The fake server describes commands as the daemon does, and returns what
;; a test tells it to.

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

(provide 'duet-rpc-test-commands)
;;; duet-rpc-test-commands.el ends here
