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
      (duet-rpc-set-log-level "debug")
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

(ert-deftest duet-rpc-gateway-runs-on-the-host-of-the-buffer ()
  (let ((config (expand-file-name "~/.config/duet-rpc/config.toml"))
        (duet-rpc--handlers (make-hash-table :test #'equal)))
    (make-directory (file-name-directory config) t)
    (write-region (duet-rpc-test-backend "plain" "content-length") nil config nil 'silent)
    (unwind-protect
        (duet-rpc-test-with-pyz
          (let ((default-directory (concat duet-rpc-test-host "/")) where)
            (duet-rpc-gateway-handle "plain/m"
                                     (lambda (_) (setq where default-directory)))
            (duet-rpc-gateway-request "plain/ask" '(:id 1 :method "m"))
            (should (equal (file-remote-p where) duet-rpc-test-host))
            (save-window-excursion
              (duet-rpc-backends)
              (should (equal (buffer-name)
                             (format "*duet-rpc backends %s*" duet-rpc-test-host)))
              (should (string-match-p "plain +ready" (buffer-string)))
              (kill-buffer)))
          (should (eq 'stopped (duet-rpc-status 'gateway)))
          (let ((default-directory (concat duet-rpc-test-host "/")))
            (should (eq 'ready (duet-rpc-status 'gateway)))))
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
        (should (string-match-p "^Daemon +stopped: not running" (buffer-string)))
        (should (eq (duet-rpc-status) 'stopped))))))

;;; tramp-tests.el ends here
