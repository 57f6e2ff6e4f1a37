;;; duet-rpc.el --- Emacs commands written in Python  -*- lexical-binding: t; -*-

;; Copyright (C) 2025 the duet-rpc authors

;; Author: the duet-rpc authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: comm, processes, tools
;; URL: https://github.com/duet-rpc/duet-rpc
;; SPDX-License-Identifier: MIT

;; Permission is hereby granted, free of charge, to any person obtaining
;; a copy of this software and associated documentation files (the
;; "Software"), to deal in the Software without restriction, including
;; without limitation the rights to use, copy, modify, merge, publish,
;; distribute, sublicense, and/or sell copies of the Software, and to
;; permit persons to whom the Software is furnished to do so, subject to
;; the following conditions:
;;
;; The above copyright notice and this permission notice shall be
;; included in all copies or substantial portions of the Software.
;;
;; THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
;; EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
;; MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
;; NONINFRINGEMENT.  IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
;; BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
;; ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
;; CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
;; SOFTWARE.

;;; Commentary:

;; Call Python functions from Emacs.  Keep duet-rpc.pyz beside this file:
;;
;;   (require 'duet-rpc)
;;   (duet-rpc-request "version")       ; => (:version "0.1.0")
;;   M-x duet-rpc-call                  ; any method, with completion
;;   (duet-rpc-define-command my-count "word_count" :params (:text region))
;;   M-x duet-rpc-doctor                ; when something is wrong
;;
;; The daemon starts on first use and ends with Emacs.  From a remote
;; buffer it runs on that buffer's host.  Results are plists, as in
;; jsonrpc.el, on which all this is built.

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'subr-x)

(defgroup duet-rpc nil
  "Emacs commands written in Python."
  :group 'comm
  :link '(url-link "https://github.com/duet-rpc/duet-rpc"))

(defcustom duet-rpc-program nil
  "The program to run.
If nil, it is `duet-rpc.pyz' beside this library, or else `duet-rpc'
on variable `exec-path'.  A string names a file.  A list of strings is
a whole command, run as it is."
  :type '(choice (const :tag "Look for it" nil)
                 (file :tag "File")
                 (repeat :tag "Whole command" string)))

(defcustom duet-rpc-python "python3"
  "The Python that runs `duet-rpc.pyz'."
  :type 'string)

(defcustom duet-rpc-arguments '("rpc")
  "The arguments that follow the program's name."
  :type '(repeat string))

(defcustom duet-rpc-directory nil
  "The directory that the daemon runs in; nil means your home directory."
  :type '(choice (const :tag "Home directory" nil) directory))

(defcustom duet-rpc-timeout 30
  "How many seconds to wait for an answer.
A method that reports progress may take longer: the time counts from
its last report."
  :type 'number)

(defcustom duet-rpc-events-size 0
  "How many characters of traffic to keep in the buffer of events.
Zero keeps none.  Large answers take several times as long with it."
  :type 'natnum)

(defconst duet-rpc--version "0.1.0"
  "The version of this library.")

(defconst duet-rpc--file (or load-file-name buffer-file-name)
  "The file that this library was loaded from.")

(define-error 'duet-rpc-error "duet-rpc" 'jsonrpc-error)
(define-error 'duet-rpc-timeout "duet-rpc" 'duet-rpc-error)

(cl-defstruct (duet-rpc--server (:constructor duet-rpc--make-server)
                                (:copier nil))
  "The daemon of one host, through all its lives."
  host                       ; what `file-remote-p' says; "" is this machine
  name                       ; of its process and its buffers
  (state 'stopped)           ; or starting, ready, stopping, waiting, failed
  connection process
  (calls (make-hash-table))  ; the calls that are not yet answered, by token
  born                       ; when this life began
  (deaths 0)                 ; how many lives in a row were short
  timer                      ; starts the next life
  info                       ; what it answered to `initialize'
  why                        ; what a person is told of its last death
  tail)                      ; marks where this life begins in the log

(cl-defstruct (duet-rpc--call (:constructor duet-rpc--make-call)
                              (:copier nil))
  "One request, from its sending to its one end."
  server method token id buffer timeout timer
  success-fn error-fn timeout-fn progress-fn
  outcome)                   ; nil, (result R), (error E), (timeout S), (cancelled)


(defmacro duet-rpc--sending (server method &rest body)
  "Run BODY, which sends METHOD to SERVER; make its errors a `duet-rpc-error'."
  (declare (indent 2) (debug t))
  `(condition-case err
       (progn ,@body)
     (error (duet-rpc--cannot-send ,server ,method err))))

(defmacro duet-rpc--for-person (&rest body)
  "Run BODY; turn a `duet-rpc-error' into a plain message to a person."
  (declare (indent 0) (debug t))
  `(condition-case err
       (progn ,@body)
     (duet-rpc-error (user-error "%s" (cadr err)))))


;;; Calling

;;;###autoload
(cl-defun duet-rpc-request (method &optional params &key timeout)
  "Call METHOD with PARAMS, wait for the answer and return it.
METHOD is a string or a symbol.  PARAMS is a plist, a vector or nil.
The result is as in `jsonrpc-request': objects are plists, arrays are
vectors, null is nil, false is `:json-false'.

Wait TIMEOUT seconds, or else `duet-rpc-timeout'.  \\[keyboard-quit]
cancels the call on the server too.

A failure signals `duet-rpc-error' with the data (TEXT CODE DATA); a
timeout signals its child `duet-rpc-timeout'."
  (duet-rpc--request method params :timeout timeout))

;;;###autoload
(cl-defun duet-rpc-async-request (method params &key success-fn error-fn
                                         timeout-fn timeout progress-fn)
  "Call METHOD with PARAMS and return at once.
METHOD and PARAMS are as in `duet-rpc-request'.  Exactly one of these is
called in the end, in the buffer that is current now, and none if that
buffer is dead by then or after `duet-rpc-cancel':

SUCCESS-FN with the result; ERROR-FN with a plist of `:code', `:message'
and `:data'; TIMEOUT-FN with no argument, after TIMEOUT seconds, or else
`duet-rpc-timeout'.  A failure that has no function becomes a message.

PROGRESS-FN, if non-nil, is called with a plist of `:done', `:total' and
`:message' whenever the method reports progress; PARAMS must then be a
plist.

Return an object that `duet-rpc-cancel' takes."
  (let ((call (duet-rpc--send (duet-rpc--live-server) method params
                              :buffer (current-buffer) :timeout timeout
                              :success-fn (or success-fn #'ignore)
                              :error-fn error-fn :timeout-fn timeout-fn
                              :progress-fn progress-fn)))
    (setf (duet-rpc--call-timer call)
          (run-with-timer (duet-rpc--call-timeout call) nil
                          #'duet-rpc--time-out call))
    call))

;;;###autoload
(defun duet-rpc-notify (method &optional params)
  "Tell the server METHOD with PARAMS, expecting no answer.
METHOD and PARAMS are as in `duet-rpc-request'."
  (let ((server (duet-rpc--live-server)))
    (duet-rpc--sending server method
      (jsonrpc-notify (duet-rpc--server-connection server)
                      (duet-rpc--symbol method) params))))

(defun duet-rpc-cancel (call)
  "Cancel CALL, which `duet-rpc-async-request' returned.
None of its functions is called any more."
  (when (duet-rpc--end call '(cancelled))
    (duet-rpc--tell-cancelled call)))

(defun duet-rpc-error-code (err)
  "Return the JSON-RPC code of ERR, a `duet-rpc-error', or nil."
  (nth 2 err))

(defun duet-rpc-error-data (err)
  "Return what the server added to ERR, a `duet-rpc-error'."
  (nth 3 err))


;;; Starting and stopping

;;;###autoload
(defun duet-rpc-start ()
  "Start the daemon of this buffer's host, unless it is running.
There is no need to: every call does it."
  (interactive)
  (let ((server (duet-rpc--server)))
    (duet-rpc--for-person
      (if (memq (duet-rpc--server-state server) '(starting ready))
          (message "duet-rpc runs already; M-x duet-rpc-restart starts it anew")
        (setf (duet-rpc--server-deaths server) 0)
        (duet-rpc--launch server)))))

(defun duet-rpc-stop ()
  "Stop the daemon of this buffer's host.
Ask it to leave; after two seconds, kill it."
  (interactive)
  (let* ((server (duet-rpc--server))
         (process (duet-rpc--server-process server)))
    (duet-rpc--cancel-timer server)
    (if (not (duet-rpc--alive-p server))
        (duet-rpc--set-state server 'stopped)
      (duet-rpc--set-state server 'stopping)
      (unwind-protect
          (progn
            (ignore-errors
              (duet-rpc--send server "shutdown" nil)
              (process-send-eof process))
            (let ((end (+ (float-time) 2)))
              (while (and (process-live-p process) (< (float-time) end))
                (accept-process-output process 0.05))))
        (delete-process process)))
    (when (called-interactively-p 'any)
      (message "duet-rpc has stopped"))))

(defun duet-rpc-restart ()
  "Stop the daemon of this buffer's host and start it again."
  (interactive)
  (duet-rpc-stop)
  (duet-rpc-start))

(defun duet-rpc-status ()
  "Say how the daemon of this buffer's host is, and return it as a symbol.
It is one of `stopped', `starting', `ready', `stopping', `waiting' (for
a restart after a crash) and `failed'."
  (interactive)
  (let* ((server (duet-rpc--server))
         (state (duet-rpc--server-state server))
         (busy (hash-table-count (duet-rpc--server-calls server))))
    (when (called-interactively-p 'any)
      (message
       "%s: %s" (duet-rpc--server-name server)
       (pcase state
         ('stopped "not running; the next call starts it")
         ((or 'waiting 'failed) (duet-rpc--server-why server))
         (_ (format "%s, version %s, process %s, %s pending"
                    state (or (duet-rpc--server-version server) "unknown")
                    (process-id (duet-rpc--server-process server))
                    (if (= busy 1) "1 call" (format "%d calls" busy)))))))
    state))

(defun duet-rpc-version ()
  "Show the daemon's version and return it."
  (interactive)
  (duet-rpc--for-person
    (let ((version (plist-get (duet-rpc-request "version") :version)))
      (when (called-interactively-p 'any)
        (message "duet-rpc %s (duet-rpc.el %s)" version duet-rpc--version))
      version)))


;;; Calls, from the sending to the end

(defvar duet-rpc--last-token 0
  "The token of the last call; it tells calls apart, whatever their server.")

(defvar duet-rpc--sent-id nil
  "The id of the request being sent.")

(defvar duet-rpc--queue nil
  "Functions to call, the oldest first.")

(defclass duet-rpc--connection (jsonrpc-process-connection) ()
  :documentation "A jsonrpc.el connection that tells the ids it gives.")

(cl-defmethod jsonrpc-connection-send ((connection duet-rpc--connection)
                                       &rest args)
  "Send ARGS over CONNECTION; note the id, and leave out nil params.
Without this, jsonrpc.el would send them as null."
  (setq duet-rpc--sent-id (plist-get args :id))
  (apply #'cl-call-next-method connection
         (if (plist-get args :params)
             args
           (cl-loop for (key value) on args by #'cddr
                    unless (eq key :params) append (list key value)))))

(defun duet-rpc--symbol (method)
  "Return METHOD as the symbol that jsonrpc.el wants."
  (if (stringp method) (intern method) method))

(defun duet-rpc--send (server method params &rest slots)
  "Send a request for METHOD with PARAMS to SERVER; return the call.
SLOTS are more slots of the call."
  (let* ((token (cl-incf duet-rpc--last-token))
         (call (apply #'duet-rpc--make-call
                      :server server :method method :token token slots))
         (calls (duet-rpc--server-calls server))
         (duet-rpc--sent-id nil))
    (unless (duet-rpc--call-timeout call)
      (setf (duet-rpc--call-timeout call) duet-rpc-timeout))
    (when (and (duet-rpc--call-progress-fn call) (listp params))
      (setq params `(,@params :_meta (:progressToken ,token))))
    (puthash token call calls)
    (unwind-protect
        (duet-rpc--sending server method
          ;; No timeout here: jsonrpc.el would forget the request, and
          ;; version 1.0.14 then fails on its late answer.
          (jsonrpc-async-request
           (duet-rpc--server-connection server) (duet-rpc--symbol method) params
           :success-fn (lambda (result) (duet-rpc--end call (list 'result result)))
           :error-fn (lambda (err) (duet-rpc--end call (list 'error err)))
           :timeout-fn #'ignore :timeout nil)
          (setf (duet-rpc--call-id call) duet-rpc--sent-id))
      (unless (duet-rpc--call-id call)
        (remhash token calls)))
    (force-mode-line-update t)
    call))

(defun duet-rpc--cannot-send (server method err)
  "Signal that METHOD was not sent to SERVER because of ERR."
  (unless (duet-rpc--alive-p server)
    (setq err (list 'error (or (duet-rpc--server-why server) "the daemon has ended"))))
  (signal 'duet-rpc-error
          (list (format "%s: cannot be sent: %s" method (error-message-string err)))))

(cl-defun duet-rpc--request (method params &key timeout progress-fn)
  "Call METHOD with PARAMS and TIMEOUT, as `duet-rpc-request' does.
PROGRESS-FN is as in `duet-rpc-async-request'."
  (let* ((call (duet-rpc--send (duet-rpc--live-server) method params
                               :buffer (current-buffer) :timeout timeout
                               :progress-fn progress-fn)))
    (duet-rpc--wait call)
    (pcase (duet-rpc--call-outcome call)
      (`(result ,result) result)
      (`(error ,err)
       (signal 'duet-rpc-error
               `(,(duet-rpc--error-text method err) ,(plist-get err :code)
                 ,@(when-let ((data (plist-get err :data))) (list data)))))
      (`(timeout ,text) (signal 'duet-rpc-timeout (list text))))))

(defun duet-rpc--wait (call)
  "Wait until CALL has ended; cancel it if that is interrupted."
  (let ((process (duet-rpc--server-process (duet-rpc--call-server call))))
    (setf (duet-rpc--call-timer call)
          (time-add nil (duet-rpc--call-timeout call)))
    (unwind-protect
        (while (not (duet-rpc--call-outcome call))
          ;; Short, because the answer may be read inside a timer that
          ;; runs in here.
          (accept-process-output (and (process-live-p process) process) 0.1)
          (when (time-less-p (duet-rpc--call-timer call) nil)
            (duet-rpc--time-out call)))
      (duet-rpc-cancel call))))

(defun duet-rpc--end (call outcome)
  "End CALL with OUTCOME and return t; return nil if it has ended already."
  (unless (duet-rpc--call-outcome call)
    (setf (duet-rpc--call-outcome call) outcome)
    (remhash (duet-rpc--call-token call)
             (duet-rpc--server-calls (duet-rpc--call-server call)))
    (when (timerp (duet-rpc--call-timer call))
      (cancel-timer (duet-rpc--call-timer call)))
    (when (duet-rpc--call-success-fn call) ; else somebody waits for it
      (pcase outcome
        (`(result ,result)
         (duet-rpc--call-back call (duet-rpc--call-success-fn call) result))
        (`(error ,err)
         (duet-rpc--call-back
          call (or (duet-rpc--call-error-fn call)
                   (lambda (err)
                     (message "duet-rpc: %s"
                              (duet-rpc--error-text
                               (duet-rpc--call-method call) err))))
          err))
        (`(timeout ,text)
         (duet-rpc--call-back
          call (or (duet-rpc--call-timeout-fn call)
                   (lambda () (message "duet-rpc: %s" text)))))))
    (force-mode-line-update t)
    t))

(defun duet-rpc--call-back (call function &rest args)
  "Have FUNCTION called with ARGS in the buffer of CALL, soon.
Not now, because this may be a process filter, in which FUNCTION could
not wait for another answer.  The buffer t means now, and any buffer."
  (let ((buffer (duet-rpc--call-buffer call)))
    (if (eq buffer t)
        (apply function args)
      (duet-rpc--soon
       (lambda ()
         (when (buffer-live-p buffer)
           (with-current-buffer buffer
             (condition-case-unless-debug err
                 (apply function args)
               (error
                (message "duet-rpc: the function called after %s failed: %s"
                         (duet-rpc--call-method call)
                         (error-message-string err)))))))))))

(defun duet-rpc--soon (function)
  "Call FUNCTION from the top level, after all that were queued before."
  (setq duet-rpc--queue (nconc duet-rpc--queue (list function)))
  (run-at-time 0 nil (lambda () (funcall (or (pop duet-rpc--queue) #'ignore)))))

(defun duet-rpc--tell-cancelled (call)
  "Tell the server that nobody waits for CALL any more."
  (let ((server (duet-rpc--call-server call)))
    (when (duet-rpc--alive-p server)
      (ignore-errors
        (jsonrpc-notify (duet-rpc--server-connection server)
                        '$/cancelRequest (list :id (duet-rpc--call-id call)))))))

(defun duet-rpc--time-out (call)
  "End CALL because its time is up."
  (let* ((server (duet-rpc--call-server call))
         (connection (duet-rpc--server-connection server))
         (text (format "%s: no answer within %s s"
                       (duet-rpc--call-method call) (duet-rpc--call-timeout call)))
         (last (jsonrpc-last-error connection))
         (stuck (duet-rpc--resynchronize server)))
    (when (duet-rpc--end
           call
           (list 'timeout
                 (concat text
                         (and stuck (concat "; " stuck))
                         (and last (format "; the server's last error was: %s"
                                           (plist-get last :message))))))
      (duet-rpc--tell-cancelled call))))

(defun duet-rpc--error-text (method err)
  "Describe ERR, the error object that METHOD was answered with."
  (let ((data (plist-get err :data)))
    (concat (format "%s: %s" method (plist-get err :message))
            (and (listp data) (plist-get data :param)
                 (format "; %s: expected %s, got %s" (plist-get data :param)
                         (plist-get data :expected) (plist-get data :received))))))

(defun duet-rpc--notified (server method params)
  "Take the notification METHOD with PARAMS from SERVER."
  (when (eq method '$/progress)
    (when-let ((call (gethash (plist-get params :token)
                              (duet-rpc--server-calls server))))
      (let ((end (time-add nil (duet-rpc--call-timeout call))))
        (if (timerp (duet-rpc--call-timer call))
            (timer-set-time (duet-rpc--call-timer call) end)
          (setf (duet-rpc--call-timer call) end)))
      (when (duet-rpc--call-progress-fn call)
        (duet-rpc--call-back call (duet-rpc--call-progress-fn call)
                             (plist-get params :value))))))


;;; The life of a daemon

(defconst duet-rpc--short-life 10
  "A daemon that dies within so many seconds had a short life.")

(defconst duet-rpc--short-lives 5
  "After so many short lives in a row a daemon is not started again.")

(defvar duet-rpc--servers (make-hash-table :test #'equal)
  "The servers by host.")

(defun duet-rpc--server ()
  "Return the server of the current buffer's host, running or not."
  (let ((host (or (file-remote-p default-directory) "")))
    (or (gethash host duet-rpc--servers)
        (puthash host
                 (duet-rpc--make-server
                  :host host
                  :name (if (equal host "") "duet-rpc" (concat "duet-rpc " host)))
                 duet-rpc--servers))))

(defun duet-rpc--live-server ()
  "Return the server of the current buffer's host, started if need be."
  (let ((server (duet-rpc--server)))
    (unless (duet-rpc--alive-p server)
      (if (eq (duet-rpc--server-state server) 'failed)
          (signal 'duet-rpc-error (list (duet-rpc--server-why server)))
        (duet-rpc--launch server)))
    server))

(defun duet-rpc--alive-p (server)
  "Return non-nil if SERVER's daemon lives."
  (when-let ((process (duet-rpc--server-process server)))
    (or (process-live-p process)
        ;; It has just died; this runs the sentinel now.
        (delete-process process))))

(defun duet-rpc--server-version (server)
  "Return the version that SERVER gave, or nil."
  (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :version))

(defun duet-rpc--set-state (server state)
  "Set SERVER's state to STATE, for all to see."
  (setf (duet-rpc--server-state server) state)
  (force-mode-line-update t))

(defun duet-rpc--cancel-timer (server)
  "Give up a restart of SERVER that is due."
  (when (duet-rpc--server-timer server)
    (cancel-timer (duet-rpc--server-timer server))
    (setf (duet-rpc--server-timer server) nil)))

(defun duet-rpc--launch (server)
  "Start a daemon for SERVER."
  (duet-rpc--cancel-timer server)
  (let* ((host (duet-rpc--server-host server))
         (name (duet-rpc--server-name server))
         (home (concat host (file-local-name (or duet-rpc-directory "~/"))))
         (directory (if (file-directory-p home) home (concat host "/")))
         (command (duet-rpc--command host))
         (process nil)
         (remote-sentinel nil)
         (start
          (lambda ()
            (let ((default-directory directory))
              (setq process
                    (make-process
                     :name name :command command :connection-type 'pipe
                     :coding 'utf-8-emacs-unix :noquery t :file-handler t
                     ;; This name is what jsonrpc.el counts on.
                     :stderr (get-buffer-create (format "*%s stderr*" name)))))
            (unless (equal host "")
              (setq remote-sentinel (process-sentinel process)))
            process))
         (connection
          (condition-case err
              (apply #'make-instance 'duet-rpc--connection
                     :name name :process start
                     :notification-dispatcher
                     (lambda (_ method params)
                       (duet-rpc--notified server method params))
                     :request-dispatcher
                     (lambda (_ method _params)
                       (jsonrpc-error
                        :code -32601
                        :message (format "Method not found: %s" method)))
                     (if (slot-exists-p 'jsonrpc-connection '-events-buffer-config)
                         `(:events-buffer-config
                           (:size ,duet-rpc-events-size :format full))
                       `(:events-buffer-scrollback-size ,duet-rpc-events-size)))
            (file-error
             (signal 'duet-rpc-error
                     (list (format "Cannot start %s: %s.  Set `duet-rpc-python' \
to the Python to use, or `duet-rpc-program' to the program"
                                   (car command) (error-message-string err))))))))
    (setf (duet-rpc--server-connection server) connection
          (duet-rpc--server-process server) process
          (duet-rpc--server-born server) (float-time)
          (duet-rpc--server-info server) nil
          (duet-rpc--server-why server) nil)
    (duet-rpc--keep-log server (jsonrpc-stderr-buffer connection))
    (duet-rpc--log server "started process %s: %s"
                   (process-id process) (string-join command " "))
    (add-function :around (process-filter process)
                  (lambda (next process string)
                    (duet-rpc--filter server next process string)))
    (add-function :around (process-sentinel process)
                  (lambda (next process event)
                    (duet-rpc--sentinel server next process event)
                    ;; jsonrpc.el has replaced TRAMP's, which cleans up.
                    (when remote-sentinel
                      (funcall remote-sentinel process event))))
    (duet-rpc--set-state server 'starting)
    (duet-rpc--send server "initialize" nil :buffer t
                    :success-fn (lambda (info) (duet-rpc--greeted server info))
                    :error-fn (lambda (_) (duet-rpc--greeted server nil)))))

(defun duet-rpc--greeted (server info)
  "Take INFO, what SERVER answered to `initialize', or nil.
Any JSON-RPC server will do, but a duet-rpc must fit this library."
  (when (eq (duet-rpc--server-state server) 'starting)
    (setf (duet-rpc--server-info server) (and (listp info) info))
    (duet-rpc--set-state server 'ready)
    (when (duet-rpc--ours-p server)
      (let ((protocol (plist-get info :protocolVersion))
            (version (duet-rpc--server-version server))
            (remedy "Take duet-rpc.pyz and duet-rpc.el from one release; \
M-x duet-rpc-doctor shows where each of them lies"))
        (if (not (equal protocol "2.0"))
            (duet-rpc--give-up
             server (format "The daemon speaks protocol %s, duet-rpc.el %s \
speaks 2.0.  %s" protocol duet-rpc--version remedy))
          (unless (equal (duet-rpc--minor version)
                         (duet-rpc--minor duet-rpc--version))
            (duet-rpc--soon
             (lambda ()
               (display-warning
                'duet-rpc (format "The daemon is version %s, duet-rpc.el is %s.  %s"
                                  version duet-rpc--version remedy))))))))))

(defun duet-rpc--ours-p (server)
  "Return non-nil if SERVER is known to be a duet-rpc."
  (equal (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :name)
         "duet-rpc"))

(defun duet-rpc--minor (version)
  "Return the part of VERSION that must be equal on both sides."
  (and (stringp version)
       (string-match "\\`[0-9]+\\.[0-9]+" version)
       (match-string 0 version)))

(defun duet-rpc--give-up (server why)
  "End SERVER's daemon for good, because of WHY."
  (let ((process (duet-rpc--server-process server)))
    (setf (duet-rpc--server-why server) why)
    (duet-rpc--set-state server 'failed)
    (duet-rpc--end-all server why)
    (duet-rpc--soon (lambda () (delete-process process)))))

(defun duet-rpc--end-all (server why)
  "End everything pending at SERVER with the error text WHY."
  (dolist (call (hash-table-values (duet-rpc--server-calls server)))
    (duet-rpc--end call `(error (:code -1 :message ,why)))))

(defun duet-rpc--sentinel (server next process event)
  "Take note if SERVER's PROCESS has died; hand EVENT on to NEXT."
  (when (and (not (process-live-p process))
             (eq process (duet-rpc--server-process server)))
    (let* ((buffers (list (process-buffer process)
                          (process-get process 'jsonrpc-stderr)))
           (stderr (get-buffer-process (cadr buffers))))
      ;; Its last words may still be on the way.
      (while (and (process-live-p stderr)
                  (accept-process-output stderr 0.1 nil t)))
      (setf (duet-rpc--server-process server) nil)
      (duet-rpc--died server process)
      (let ((inhibit-message t) (message-log-max nil))
        (funcall next process event))
      (mapc #'kill-buffer buffers))))

(defun duet-rpc--died (server process)
  "End everything pending at SERVER's dead PROCESS; see how to go on."
  (let* ((name (duet-rpc--server-name server))
         (code (process-exit-status process))
         (signal (eq (process-status process) 'signal))
         (how (cond (signal (format "was killed by signal %d" code))
                    ((= code 256) "closed its input") ; so Emacs notes it
                    (t (format "exited with code %d" code))))
         (tail (duet-rpc--log-tail server 5))
         (words (if (equal tail "")
                    ""
                  (format ".  Its last words (M-x duet-rpc-show-log has more):\n%s"
                          tail))))
    (duet-rpc--log server "%s" how)
    (cond
     ((eq (duet-rpc--server-state server) 'failed)
      (duet-rpc--end-all server (duet-rpc--server-why server)))
     ((eq (duet-rpc--server-state server) 'stopping)
      (duet-rpc--end-all server (format "%s was stopped before it answered" name))
      (duet-rpc--set-state server 'stopped))
     ((and (= code 0) (not signal))
      (duet-rpc--end-all server (format "%s ended before it answered" name))
      (duet-rpc--set-state server 'stopped))
     (t
      (duet-rpc--end-all server (format "%s %s before it answered%s" name how words))
      (duet-rpc--crashed server how words)))))

(defun duet-rpc--crashed (server how words)
  "Start SERVER again in a while, or never.
HOW says how it died, WORDS what it said last."
  (let* ((name (duet-rpc--server-name server))
         (short (< (- (float-time) (duet-rpc--server-born server))
                   duet-rpc--short-life))
         (deaths (setf (duet-rpc--server-deaths server)
                       (if short (1+ (duet-rpc--server-deaths server)) 1)))
         (delay (expt 2 (1- deaths))))
    (setf (duet-rpc--server-why server)
          (cond
           ((>= deaths duet-rpc--short-lives)
            (format "%s %s, %d times in a row, and is not started again; \
once it is mended, M-x duet-rpc-restart%s" name how deaths words))
           ;; A timer must not ask for a password.
           ((not (equal (duet-rpc--server-host server) ""))
            (format "%s %s; the next call starts it again%s" name how words))
           (t (format "%s %s; it starts again in %d s%s" name how delay words))))
    (message "%s" (duet-rpc--server-why server))
    (cond
     ((>= deaths duet-rpc--short-lives)
      (duet-rpc--set-state server 'failed))
     ((equal (duet-rpc--server-host server) "")
      (duet-rpc--set-state server 'waiting)
      (setf (duet-rpc--server-timer server)
            (run-with-timer delay nil
                            (lambda ()
                              (condition-case err
                                  (duet-rpc--launch server)
                                (duet-rpc-error
                                 (duet-rpc--set-state server 'stopped)
                                 (message "%s" (cadr err))))))))
     (t (duet-rpc--set-state server 'stopped)))))


;;; Bytes from the daemon

(defun duet-rpc--filter (server next process string)
  "Give STRING from SERVER's PROCESS to NEXT, jsonrpc.el's filter.
Skip stray output: jsonrpc.el looks for a header in 100 bytes only, and
would wait behind more than that for ever."
  (process-put process 'duet-rpc-heard (float-time))
  (while string
    (setq string
          (condition-case err
              (progn (funcall next process string)
                     (and (duet-rpc--skip-junk server process) ""))
            ;; Version 1.0.14 fails on an answer that has no id.  It
            ;; leaves the messages behind that one for the next time.
            (error
             (duet-rpc--log server "jsonrpc.el failed on a message: %s; %S"
                            (error-message-string err)
                            (jsonrpc-last-error
                             (duet-rpc--server-connection server)))
             (and (> (buffer-size (process-buffer process)) 0) ""))))))

(defconst duet-rpc--header "Content-Length: *[0-9]+\r\n"
  "What a message begins with.
It cannot stand inside one: JSON has no bare carriage return in a string
and no such word outside.")

(defun duet-rpc--skip-junk (server process)
  "Delete what stands before the next header in the output of PROCESS.
Return non-nil, with a message, if there was something.  SERVER is the
server."
  (when (buffer-live-p (process-buffer process))
    (with-current-buffer (process-buffer process)
      ;; Point is behind the header while a message is read.
      (when (and (bobp) (> (buffer-size) 100))
        (let ((next (duet-rpc--next-header)))
          (when (or next (> (buffer-size) 100000))
            (message "duet-rpc: %s"
                     (duet-rpc--drop server (or next (- (point-max) 100))))))))))

(defun duet-rpc--next-header ()
  "Return where the next header begins behind point, or nil."
  (save-excursion
    (unless (eobp) (forward-char 1))
    (and (re-search-forward duet-rpc--header nil t) (match-beginning 0))))

(defun duet-rpc--drop (server end)
  "Delete the output of SERVER up to END and describe it."
  (let ((bytes (buffer-substring-no-properties (point-min) end))
        (inhibit-read-only t)
        (print-escape-newlines t)
        (print-escape-control-characters t))
    (delete-region (point-min) end)
    (goto-char (point-min))
    (setf (slot-value (duet-rpc--server-connection server) '-expected-bytes) nil)
    (let ((text (format "%d stray bytes on the server's stdout were skipped: %S"
                        (string-bytes bytes)
                        (truncate-string-to-width bytes 200 nil nil "..."))))
      (duet-rpc--log server "%s" text)
      text)))

(defun duet-rpc--resynchronize (server)
  "Drop unread output that SERVER's connection waits behind in vain.
Describe it; return nil if there was none.  A message that is still
arriving is left alone."
  (when-let ((process (duet-rpc--server-process server))
             (buffer (process-buffer process)))
    (when (and (buffer-live-p buffer) (> (buffer-size buffer) 0))
      (with-current-buffer buffer
        (let ((next (duet-rpc--next-header)))
          (when (or next (> (- (float-time) (process-get process 'duet-rpc-heard)) 1))
            (prog1 (duet-rpc--drop server (or next (point-max)))
              (funcall (process-filter process) process ""))))))))


;;; The log

(defun duet-rpc--log-buffer (server)
  "Return the buffer of SERVER's log."
  (let ((name (format "*%s log*" (duet-rpc--server-name server))))
    (or (get-buffer name)
        (with-current-buffer (get-buffer-create name)
          (special-mode)
          (buffer-disable-undo)
          (current-buffer)))))

(defun duet-rpc--append-log (server text)
  "Append TEXT to SERVER's log, and keep that from growing for ever."
  (with-current-buffer (duet-rpc--log-buffer server)
    (let* ((inhibit-read-only t)
           (end (point-max))
           (at-end (cl-remove-if-not (lambda (window) (= (window-point window) end))
                                     (get-buffer-window-list nil nil t))))
      (save-excursion
        (goto-char end)
        (insert text)
        (when (> (buffer-size) 200000)
          (delete-region (point-min) (- (point-max) 100000))))
      (dolist (window at-end)
        (set-window-point window (point-max))))))

(defun duet-rpc--log (server format &rest args)
  "Note FORMAT with ARGS in SERVER's log, as a remark from Emacs."
  (duet-rpc--append-log
   server (format "%s emacs: %s\n" (format-time-string "%FT%T")
                  (apply #'format format args))))

(defun duet-rpc--keep-log (server buffer)
  "Send what arrives in BUFFER, SERVER's stderr, to its log instead."
  (with-current-buffer (duet-rpc--log-buffer server)
    (setf (duet-rpc--server-tail server) (copy-marker (point-max))))
  (when-let ((stderr (get-buffer-process buffer)))
    (set-process-coding-system stderr 'utf-8-unix 'utf-8-unix)
    (set-process-query-on-exit-flag stderr nil)
    (set-process-sentinel stderr #'ignore)
    (set-process-filter stderr
                        (lambda (_ text) (duet-rpc--append-log server text)))))

(defun duet-rpc--log-tail (server lines)
  "Return the last LINES lines that SERVER's daemon wrote in this life."
  (with-current-buffer (duet-rpc--log-buffer server)
    (let ((all (split-string
                (buffer-substring-no-properties
                 (or (duet-rpc--server-tail server) (point-min)) (point-max))
                "\n" t)))
      (string-join
       (last (cl-remove-if (lambda (line) (string-match-p "\\`[^ ]+ emacs: " line))
                           all)
             lines)
       "\n"))))


;;; Finding the program

(defun duet-rpc--places ()
  "Return the files to look for, as an alist of (FILE . WHERE-THAT-IS)."
  (if (stringp duet-rpc-program)
      `((,(expand-file-name duet-rpc-program) . "the option `duet-rpc-program'"))
    (let* ((el (and duet-rpc--file
                    (concat (file-name-sans-extension duet-rpc--file) ".el")))
           (beside (and el (expand-file-name "duet-rpc.pyz" (file-name-directory el))))
           ;; Package managers that build elsewhere link the file there.
           (true (and el (expand-file-name "duet-rpc.pyz" (file-name-directory
                                                           (file-truename el))))))
      `(,@(and beside `((,beside . "beside duet-rpc.el")))
        ,@(and true (not (equal true beside))
               `((,true . "beside the file that duet-rpc.el links to")))))))

(defun duet-rpc--find-pyz ()
  "Return the file of the option or beside this library, or nil."
  (car (cl-find-if #'file-regular-p (duet-rpc--places) :key #'car)))

(defun duet-rpc--not-found (host)
  "Signal that there is no program for HOST, and say what to do."
  (signal
   'duet-rpc-error
   (list
    (concat
     "Cannot find the program.  Looked for\n"
     (mapconcat (lambda (place) (format "  %s (%s)\n" (car place) (cdr place)))
                (duet-rpc--places) "")
     (unless (stringp duet-rpc-program)
       (format "  duet-rpc (on the path%s: %s)\n"
               (if (equal host "") "" (concat " of " host))
               (string-join (if (equal host "") exec-path (exec-path)) " ")))
     "Put duet-rpc.pyz beside duet-rpc.el, or run \"pipx install duet-rpc\", \
or set `duet-rpc-program'"))))

(defun duet-rpc--command (host)
  "Return the command line of the daemon on HOST."
  (let* ((default-directory (if (equal host "") default-directory (concat host "/")))
         (file (and (not (consp duet-rpc-program)) (duet-rpc--find-pyz)))
         (program
          (cond
           ((consp duet-rpc-program) nil)
           ((null file)
            (or (and (not duet-rpc-program)
                     (executable-find "duet-rpc" (not (equal host ""))))
                (duet-rpc--not-found host)))
           ((equal host "") file)
           (t (duet-rpc--copy file host))))
         (command
          (cond
           ((not program) duet-rpc-program)
           ((and file (duet-rpc--python-p file))
            `(,duet-rpc-python ,program ,@duet-rpc-arguments))
           (t (cons program duet-rpc-arguments)))))
    (if (equal host "")
        command
      ;; Emacs 28.2 hangs on a terminal that is not raw.
      (list "sh" "-c" (concat "stty raw -echo > /dev/null 2>&1; exec "
                              (mapconcat #'shell-quote-argument command " "))))))

(defun duet-rpc--python-p (file)
  "Return non-nil if FILE is a program in Python."
  (member (file-name-extension file) '("pyz" "py")))

(defun duet-rpc--copy (file host)
  "Copy FILE to HOST, unless it is there, and return its name there."
  (let* ((sum (with-temp-buffer
                (set-buffer-multibyte nil)
                (insert-file-contents-literally file)
                (secure-hash 'sha1 (current-buffer))))
         (directory (expand-file-name (concat host "~/.cache/duet-rpc/")))
         (target (expand-file-name (format "duet-rpc-%s-%s.%s" duet-rpc--version
                                           (substring sum 0 8)
                                           (or (file-name-extension file) "bin"))
                                   directory)))
    (unless (file-exists-p target)
      (make-directory directory t)
      ;; Renamed when it is whole, in case two of us do this at once.
      (let ((part (make-temp-name (concat target "."))))
        (copy-file file part)
        (rename-file part target t)))
    (file-local-name target)))

(provide 'duet-rpc)
;;; duet-rpc.el ends here
