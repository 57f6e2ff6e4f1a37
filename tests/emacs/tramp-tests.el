;;; tramp-tests.el --- A daemon on another host  -*- lexical-binding: t; -*-

;;; Commentary:

;; The other host is this one, behind TRAMP's mock method: a shell, and
;; all that TRAMP does to reach files and processes through one.

;;; Code:

(require 'duet-rpc-test-helpers)
(require 'tramp)

(add-to-list 'tramp-methods
             '("mock"
               (tramp-login-program "sh")
               (tramp-login-args (("-i")))
               (tramp-remote-shell "/bin/sh")
               (tramp-remote-shell-args ("-c"))
               (tramp-connection-timeout 10)))
(add-to-list 'tramp-default-host-alist `("\\`mock\\'" nil ,(system-name)))
(setq tramp-verbose 1
      tramp-persistency-file-name nil
      password-cache nil
      enable-remote-dir-locals nil)
(setenv "TERM" "dumb")

(defconst duet-rpc-test-host
  (file-remote-p (concat "/mock::" temporary-file-directory)))

(defun duet-rpc-test-copies ()
  "Return the copies of the daemon on the other host."
  (ignore-errors (directory-files "~/.cache/duet-rpc/" t "\\.pyz\\'")))

(ert-deftest duet-rpc-runs-on-the-host-of-the-buffer ()
  (duet-rpc-test-with-pyz
    (let ((local (progn (duet-rpc-request "version") (duet-rpc-test-pid)))
          (default-directory (concat duet-rpc-test-host "/")))
      (mapc #'delete-file (duet-rpc-test-copies))
      (should (equal (duet-rpc-request "version") (list :version duet-rpc--version)))
      (should-not (= local (duet-rpc-test-pid)))
      (should (= 2 (hash-table-count duet-rpc--servers)))
      (should (= 1 (length (duet-rpc-test-copies))))
      ;; Both at once, and text that a terminal would alter.
      (let (got)
        (dotimes (_ 20)
          (duet-rpc-async-request "version" nil :success-fn (lambda (r) (push r got)))
          (let ((default-directory "/"))
            (duet-rpc-async-request "version" nil
                                    :success-fn (lambda (r) (push r got)))))
        (duet-rpc-test-until (= 40 (length got))))
      (let ((err (should-error (duet-rpc-request
                                "setLogLevel" '(:level "é\x03\x04\x7f\t\r\n")))))
        (should (equal (plist-get (duet-rpc-error-data err) :received)
                       "é\x03\x04\x7f\t\r\n")))
      (let ((err (should-error (duet-rpc-request
                                "setLogLevel" (list :level (make-string 100000 ?x))))))
        (should (equal -32602 (duet-rpc-error-code err))))
      ;; The log arrives from there too.
      (duet-rpc-request "setLogLevel" '(:level "debug"))
      (duet-rpc-request "version")
      (duet-rpc-test-until
       (string-match-p "DEBUG" (duet-rpc--stderr-tail (duet-rpc--server) 5)))
      ;; The second time it is there already.
      (let ((copy (car (duet-rpc-test-copies))))
        (set-file-times copy 0)
        (duet-rpc-restart)
        (should (duet-rpc-request "version"))
        (should (equal (list copy) (duet-rpc-test-copies)))
        (should (time-equal-p 0 (file-attribute-modification-time
                                 (file-attributes copy))))))))

(ert-deftest duet-rpc-commands-run-on-this-machine-unless-they-say-otherwise ()
  (duet-rpc-test-with-fake
    (unwind-protect
        (with-temp-buffer
          (setq default-directory (concat duet-rpc-test-host "/"))
          (duet-rpc--define-commands
           '((:name "upcase" :params [(:name "text" :required t :schema (:type "string"))]
                    :x-command (:name "my-here" :sources (:text (:lisp "default-directory"))))
             (:name "upcase" :params [(:name "text" :required t :schema (:type "string"))]
                    :x-command (:name "my-there" :remote t :sources (:text (:lisp "\"there\""))))))
          ;; The Lisp form is evaluated in the buffer.
          (should (string-search (upcase default-directory)
                                 (duet-rpc-test-messages
                                   (call-interactively 'my-here)
                                   (duet-rpc-test-idle))))
          (should (equal '("") (hash-table-keys duet-rpc--servers)))
          (should (string-search "THERE" (duet-rpc-test-messages
                                           (call-interactively 'my-there)
                                           (duet-rpc-test-idle))))
          (should (gethash duet-rpc-test-host duet-rpc--servers)))
      (duet-rpc--define-commands nil))))

(ert-deftest duet-rpc-another-host-defines-no-commands ()
  ;; Its methods could have any Lisp evaluated here.
  (duet-rpc-test-with-fake
    (let ((duet-rpc-mode t)
          (default-directory (concat duet-rpc-test-host "/")))
      (duet-rpc-request "announce")
      (accept-process-output nil 0.3)
      (should-not (duet-rpc-test-seen "rpc.discover"))
      (should-not (duet-rpc--running-p (duet-rpc--local-server))))))

(ert-deftest duet-rpc-methods-on-another-host-ask-but-run-no-lisp ()
  (dolist (host `(,duet-rpc-test-host
                  ,@(when (= 0 (user-uid)) ; who needs no password
                      `(,(file-remote-p "/su::/")
                        ,@(when (executable-find "sudo")
                            (list (file-remote-p "/sudo::/")))))))
    (let ((duet-rpc-arguments
           (list "rpc" "--methods" (expand-file-name "asking.py" duet-rpc-test-directory)))
          (default-directory (concat host "/")))
      (duet-rpc-test-with-pyz
        (cl-letf (((symbol-function 'y-or-n-p) #'always))
          (should (eq t (duet-rpc-request "confirm"))))
        (should (equal (aref (duet-rpc-request "error" '(:text "(emacs-pid)")) 0)
                       "Unsupported"))
        ;; A daemon that asks all the same is refused.
        (cl-letf (((symbol-function 'duet-rpc--abilities) (lambda (_) ["emacs"])))
          (should (equal (aref (duet-rpc-request "error" '(:text "(emacs-pid)")) 0)
                         "Unsupported")))
        (let ((duet-rpc-trusted-hosts (list "/ssh:elsewhere:" "/su:nobody@localhost:")))
          (should (equal (aref (duet-rpc-request "error" '(:text "(emacs-pid)")) 0)
                         "Unsupported")))
        (let ((duet-rpc-trusted-hosts (list host)))
          (should (= (emacs-pid)
                     (duet-rpc-request "evaluate" '(:text "(emacs-pid)")))))))))

(ert-deftest duet-rpc-backend-runs-on-the-host-of-the-buffer ()
  (let ((config (expand-file-name "~/.config/duet-rpc/config.toml"))
        (duet-rpc--handlers (make-hash-table :test #'equal)))
    (make-directory (file-name-directory config) t)
    (write-region (duet-rpc-test-backend "plain" "content-length") nil config nil 'silent)
    (unwind-protect
        (duet-rpc-test-with-pyz
          (let ((default-directory (concat duet-rpc-test-host "/")) where)
            (duet-rpc-handle "plain/m"
                             (lambda (_) (setq where default-directory)))
            (duet-rpc-request "plain/ask" '(:id 1 :method "m"))
            (should (equal (file-remote-p where) duet-rpc-test-host))
            (save-window-excursion
              (duet-rpc-backends)
              (should (equal (buffer-name)
                             (format "*duet-rpc backends %s*" duet-rpc-test-host)))
              (should (string-match-p "plain +backend +ready" (buffer-string)))
              (kill-buffer)))
          (should (eq 'stopped (duet-rpc-status)))
          (let ((default-directory (concat duet-rpc-test-host "/")))
            (should (eq 'ready (duet-rpc-status)))))
      (delete-file config))))

(ert-deftest duet-rpc-says-when-the-other-host-has-no-program ()
  (duet-rpc-test-with "/nowhere/duet-rpc.pyz"
    (let* ((default-directory (concat duet-rpc-test-host "/"))
           (err (should-error (duet-rpc-request "version") :type 'duet-rpc-error)))
      (should (string-match-p "/nowhere/duet-rpc.pyz" (cadr err))))
    (let* ((duet-rpc-program nil)
           (duet-rpc--file "/nowhere/duet-rpc.el")
           (default-directory (concat duet-rpc-test-host "/"))
           (err (should-error (duet-rpc-request "version") :type 'duet-rpc-error)))
      (should (string-match-p (concat "program for " duet-rpc-test-host) (cadr err)))
      (should (string-match-p "duet-rpc (on the path: .*/bin" (cadr err))))))

(ert-deftest duet-rpc-says-when-the-other-host-has-no-python ()
  (duet-rpc-test-with-pyz
    (let* ((duet-rpc-python "no-such-python")
           (default-directory (concat duet-rpc-test-host "/"))
           (err (should-error (duet-rpc-request "version") :type 'duet-rpc-error)))
      (should (string-match-p "exited with code 127, command not found (see `duet-rpc-python')" (cadr err)))
      (should (string-match-p "no-such-python: not found" (cadr err)))
      ;; No timer connects to another host.
      (should-not (duet-rpc--server-restart-timer (duet-rpc--server)))
      (should (eq (duet-rpc-status) 'stopped)))))

(ert-deftest duet-rpc-copies-only-python-programs ()
  (let ((script (make-temp-file "duet-rpc-script")))
    (unwind-protect
        (duet-rpc-test-with script
          (write-region (concat "#!/bin/sh\nexec "
                                (mapconcat #'shell-quote-argument duet-rpc-test-fake " ")
                                "\n")
                        nil script nil 'silent)
          (let ((default-directory (concat duet-rpc-test-host "/"))
                (before (duet-rpc-test-copies)))
            (should (string-match-p
                     (regexp-quote script)
                     (cadr (should-error (duet-rpc-request "echo") :type 'duet-rpc-error))))
            (set-file-modes (concat duet-rpc-test-host script) #o755)
            (should (equal "A" (duet-rpc-request "upcase" '(:text "a"))))
            (should (equal before (duet-rpc-test-copies)))))
      (delete-file script))))

(ert-deftest duet-rpc-doctor-starts-nothing-on-another-host ()
  (duet-rpc-test-with-pyz
    (let ((default-directory (concat duet-rpc-test-host "/")))
      (save-window-excursion
        (duet-rpc-doctor)
        (should (string-match-p "^! daemon +stopped: not running" (buffer-string)))
        (should (eq (duet-rpc-status) 'stopped))))))

(ert-deftest duet-rpc-debug-is-for-other-hosts-only-if-asked ()
  (duet-rpc-test-with (cadr duet-rpc-test-fake)
    (let ((default-directory (concat duet-rpc-test-host "/")))
      (should (equal (duet-rpc-request "arguments") ["rpc"]))
      (duet-rpc-stop)
      (let ((duet-rpc-debug 'everywhere))
        (should (equal (duet-rpc-request "arguments") ["rpc" "--debug"]))))))

(ert-deftest duet-rpc-traceback-visits-files-on-its-host ()
  (let ((file (make-temp-file "duet-rpc" nil ".py" "\n{}['x']\n"))
        (next-error-last-buffer nil))
    (unwind-protect
        (duet-rpc-test-with (cadr duet-rpc-test-fake)
          (save-window-excursion
            (let ((default-directory (concat duet-rpc-test-host "/")))
              (should-error (duet-rpc-request "run" (list :file file)) :type 'duet-rpc-error)
              (duet-rpc--append-log (duet-rpc--server)
                                    (format "x (%s:1 in x)\n" (file-name-nondirectory file))))
            ;; From a buffer of this machine.
            (next-error)
            (with-current-buffer (window-buffer)
              (should (equal buffer-file-name (concat duet-rpc-test-host file)))
              (should (= 2 (line-number-at-pos (window-point)))))
            (set-buffer (format "*duet-rpc %s log*" duet-rpc-test-host))
            (duet-rpc--visit-place (file-name-nondirectory file) 1)
            (should (equal buffer-file-name (concat duet-rpc-test-host file)))
            (kill-buffer)))
      (kill-buffer "*duet-rpc traceback*")
      (delete-file file))))

(ert-deftest duet-rpc-load-file-and-new-use-the-host-of-the-buffer ()
  (let ((name (expand-file-name "~/.config/duet-rpc/methods/there.py")))
    (unwind-protect
        (duet-rpc-test-with (cadr duet-rpc-test-fake)
          (save-window-excursion
            (with-temp-buffer
              (setq default-directory (concat duet-rpc-test-host "/"))
              (duet-rpc-new "there"))
            (should (equal (buffer-file-name (window-buffer))
                           (concat duet-rpc-test-host name)))
            (with-current-buffer (window-buffer)
              (should (equal (duet-rpc--methods-folder (duet-rpc--server))
                             (file-name-directory buffer-file-name)))
              (duet-rpc-load-file buffer-file-name)
              (should (string-match-p (regexp-quote (format "{\"file\": %S" name))
                                      (plist-get (car (duet-rpc-test-seen "loadMethods"))
                                                 :raw)))
              (kill-buffer))))
      (delete-file name))))

(ert-deftest duet-rpc-doctor-runs-on-the-host-of-a-running-daemon ()
  (duet-rpc-test-with (cadr duet-rpc-test-fake)
    (let ((default-directory (concat duet-rpc-test-host "/")))
      (duet-rpc-request "echo")
      (save-window-excursion
        (duet-rpc-doctor)
        (duet-rpc-test-until (not (string-match-p "^…" (buffer-string))) 30)
        (should (string-match-p "^! log +odd$" (buffer-string)))
        (should (string-match-p "^✓ daemon +ready, " (buffer-string)))))))

;;; tramp-tests.el ends here
