;;; jsonrpc.el --- Emacs's own client against the daemon -*- lexical-binding: t -*-

;;; Commentary:

;; emacs -Q --batch -l jsonrpc.el PYTHON DUET-RPC.PYZ
;;
;; Only the stock jsonrpc.el is used, not duet-rpc.el: this shows what any package
;; that builds on jsonrpc.el gets.

;;; Code:

(require 'ert)
(require 'jsonrpc)

(defvar client-command
  (prog1 (list (pop command-line-args-left) (pop command-line-args-left) "rpc")
    (setq command-line-args-left nil)))

(defvar client-connection nil)

(defun client-start ()
  "Start a daemon as a package would."
  (setq client-connection
        (make-instance
         'jsonrpc-process-connection
         :name "client"
         :process (lambda ()
                    (make-process :name "client" :command client-command
                                  :connection-type 'pipe :coding 'utf-8-emacs-unix
                                  :noquery t
                                  :stderr (get-buffer-create "*client stderr*"))))))

(defun client-call (method &optional params)
  "Call METHOD with PARAMS."
  (jsonrpc-request client-connection method params :timeout 20))

(defun client-error (method &optional params)
  "Call METHOD with PARAMS, which must fail; return the error's alist."
  (condition-case caught
      (progn (client-call method params) (ert-fail "no error"))
    (jsonrpc-error (cddr caught))))

(ert-deftest client-makes-all-six-calls ()
  (client-start)
  (should (equal (plist-get (plist-get (client-call 'initialize) :serverInfo) :name) "duet-rpc"))
  (should (= (length (client-call 'listMethods)) 6))
  (should (= (length (client-call 'describeMethods)) 6))
  (should (stringp (plist-get (client-call 'version) :version)))
  (should (equal (client-call 'setLogLevel '(:level "warn")) '(:level "warn" :success t)))
  (should (equal (client-call 'setLogLevel ["info"]) '(:level "info" :success t)))
  (let ((process (jsonrpc--process client-connection)))
    (should (equal (client-call 'shutdown) '(:message "Shutting down gracefully")))
    (with-timeout (5 (ert-fail "still alive"))
      (while (process-live-p process) (accept-process-output process 0.01)))
    (should (= (process-exit-status process) 0))))

(ert-deftest client-gets-letters-of-all-scripts-both-ways ()
  (client-start)
  (let* ((word "日本語 é 😀 \u2028 \"\\ \t")
         (failed (client-error 'setLogLevel (list :level word))))
    (should (= (alist-get 'jsonrpc-error-code failed) -32602))
    (should (equal (plist-get (alist-get 'jsonrpc-error-data failed) :received) word))))

(ert-deftest client-sends-five-megabytes ()
  (client-start)
  (let ((failed (client-error 'setLogLevel (list :level (make-string 5000000 ?é)))))
    (should (equal (plist-get (alist-get 'jsonrpc-error-data failed) :received)
                   (make-string 80 ?é)))))

(ert-deftest client-is-told-of-every-error-by-its-own-id ()
  (client-start)
  (should (= (alist-get 'jsonrpc-error-code (client-error 'no-such-method)) -32601))
  (should (= (alist-get 'jsonrpc-error-code (client-error 'version '(:x 1))) -32602))
  (should (= (alist-get 'jsonrpc-error-code (client-error 'version "text")) -32600)))

(ert-deftest client-makes-a-thousand-calls ()
  (client-start)
  (dotimes (_ 1000) (client-call 'version))
  (should (stringp (plist-get (client-call 'version) :version))))

(ert-run-tests-batch-and-exit)

;;; jsonrpc.el ends here
