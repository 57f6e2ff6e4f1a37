;;; duet-rpc.el --- Emacs commands written in Python  -*- lexical-binding: t; -*-

;; Copyright (C) 2026 the duet-rpc authors

;; Author: the duet-rpc authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: comm, processes, tools
;; URL: https://github.com/duet-rpc/duet-rpc
;; SPDX-License-Identifier: MIT

;; This file is free software under the MIT license; see the file LICENSE
;; that comes with it, or <https://opensource.org/license/mit>.

;;; Commentary:

;; Call Python functions from Emacs.  Put duet-rpc.pyz beside this file:
;;
;;   (require 'duet-rpc)
;;   (duet-rpc-request "version")       ; => (:version "0.1.0")
;;   M-x duet-rpc-call                  ; any method, with completion
;;   (duet-rpc-define-command my-count "word_count" :params (:text region))
;;   M-x duet-rpc-backends              ; other servers, behind the gateway
;;   M-x duet-rpc-doctor                ; when something is wrong
;;
;; The daemon starts on first use and exits with Emacs, and so does the
;; gateway.  In a remote buffer, they run on that buffer's host.  The
;; library is built on jsonrpc.el; results are plists, as there.
;;
;; The file is in this order: options, the public API, transport (the
;; process and its output), requests and replies, and the user interface.

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'help-mode)
(require 'json)
(require 'lisp-mnt)
(require 'subr-x)
(require 'tabulated-list)
(require 'thingatpt)
(eval-when-compile (require 'transient))

(declare-function find-library-name "find-func" (library))
(declare-function js-json-mode "js" ())
(declare-function transient-prefix "transient" (&rest slots))
(declare-function transient-setup "transient" (&optional name))

(defgroup duet-rpc nil
  "Emacs commands written in Python."
  :group 'comm
  :link '(url-link "https://github.com/duet-rpc/duet-rpc"))

(defcustom duet-rpc-program nil
  "Program to run.
If nil, use `duet-rpc.pyz' beside this library, or else `duet-rpc' on
variable `exec-path'.  A string is a file name, or the name of a command
on variable `exec-path'.  A list of strings is a complete command, run as
it is, without `duet-rpc-arguments'."
  :type '(choice (const :tag "Search for it" nil)
                 (file :tag "File")
                 (repeat :tag "Complete command" string)))

(defcustom duet-rpc-python "python3"
  "Python interpreter that runs `duet-rpc.pyz'."
  :type 'string)

(defcustom duet-rpc-arguments '("rpc")
  "Command-line arguments for the program."
  :type '(repeat string))

(defcustom duet-rpc-gateway-command nil
  "Complete command that starts the gateway, as a list of strings.
If nil, run the program that `duet-rpc-program' specifies, with the
argument \"gateway\"."
  :type '(choice (const :tag "Same program as the daemon" nil)
                 (repeat :tag "Complete command" string)))

(defcustom duet-rpc-directory nil
  "Working directory of the daemon and the gateway.
If nil, use your home directory."
  :type '(choice (const :tag "Home directory" nil) directory))

(defcustom duet-rpc-timeout 30
  "Number of seconds to wait for a reply.
A method that reports progress may take longer: the time is counted from
its last progress report."
  :type 'number)

(defcustom duet-rpc-events-size 0
  "Number of characters to keep in the events buffer, or 0 to keep none.
Logging events makes large replies several times slower."
  :type 'natnum)

(defconst duet-rpc--version "0.1.0"
  "Version of this library.")

(defconst duet-rpc--file (or load-file-name buffer-file-name)
  "File this library was loaded from.")

(define-error 'duet-rpc-error "duet-rpc" 'jsonrpc-error)
(define-error 'duet-rpc-timeout "duet-rpc" 'duet-rpc-error)

(cl-defstruct (duet-rpc--server (:constructor duet-rpc--make-server)
                                (:copier nil))
  "The daemon or the gateway of one host, across all its processes."
  host                       ; as `file-remote-p' returns it; "" is this machine
  role                       ; nil for the daemon, or `gateway'
  name                       ; of its process and its buffers
  (state 'stopped)           ; or starting, ready, stopping, waiting, failed
  connection process
  (pending (make-hash-table)) ; calls without a reply yet, by token
  start-time                 ; of the current process
  (quick-exits 0)            ; how many processes in a row crashed soon after start
  deadline-timer             ; (TIME . TIMER) for the next deadline of a call
  restart-timer              ; starts the next process after a crash
  info                       ; the result of `initialize'
  reason                     ; why it is not running, for a person to read
  stderr-start)              ; where the current process's stderr begins in the log

(defvar duet-rpc--servers (make-hash-table :test #'equal)
  "Hash table of servers; each key is a cons (HOST . ROLE).")

(cl-defstruct (duet-rpc--call (:constructor duet-rpc--make-call)
                              (:copier nil))
  "One request, from the time it is sent until it has its outcome."
  server method token id buffer timeout
  deadline                   ; when it times out, if ever
  success-fn error-fn timeout-fn progress-fn
  null-id-error              ; text of an error with id null that came meanwhile
  outcome)                   ; nil, (result R), (error E), (timeout S), (cancelled)


(defmacro duet-rpc--with-send-errors (server method &rest body)
  "Run BODY, which sends METHOD to SERVER; signal errors as `duet-rpc-error'."
  (declare (indent 2) (debug t))
  `(condition-case err
       (progn ,@body)
     (error (duet-rpc--signal-send-error ,server ,method err))))

(defmacro duet-rpc--with-user-errors (&rest body)
  "Run BODY; signal any `duet-rpc-error' as a `user-error' instead."
  (declare (indent 0) (debug t))
  `(condition-case err
       (progn ,@body)
     (duet-rpc-error (user-error "%s" (cadr err)))))


;;; Calling methods

;;;###autoload
(cl-defun duet-rpc-request (method &optional params &key timeout)
  "Call METHOD with PARAMS, wait for the result and return it.
METHOD is a string or a symbol.  PARAMS is a plist, a vector or nil.
The result is as in `jsonrpc-request': objects are plists, arrays are
vectors, null is nil, false is `:json-false'.

Wait at most TIMEOUT seconds (default `duet-rpc-timeout').
\\[keyboard-quit] cancels the call on the server as well.

If the call fails, signal `duet-rpc-error' with data (TEXT CODE DATA);
if it times out, signal `duet-rpc-timeout', which inherits from it."
  (duet-rpc--request (duet-rpc--ensure-server) method params :timeout timeout))

;;;###autoload
(cl-defun duet-rpc-async-request (method params &key success-fn error-fn
                                         timeout-fn timeout progress-fn)
  "Call METHOD with PARAMS without waiting for the reply.
METHOD and PARAMS are as in `duet-rpc-request'.  When the call is over,
exactly one of these functions is called, in the buffer that is current
now; none is called if that buffer has been killed, or the call has been
cancelled with `duet-rpc-cancel':

SUCCESS-FN with the result; ERROR-FN with a plist of `:code', `:message'
and `:data'; TIMEOUT-FN with no arguments, after TIMEOUT seconds (default
`duet-rpc-timeout').  Without ERROR-FN or TIMEOUT-FN, show a message.

PROGRESS-FN, if non-nil, is called with a plist of `:done', `:total' and
`:message' whenever the method reports progress; PARAMS must then be a
plist.

Return an object to pass to `duet-rpc-cancel'.  Signal `duet-rpc-error'
if the daemon cannot be started or the request cannot be sent."
  (duet-rpc--async-request (duet-rpc--ensure-server) method params
                           :success-fn (or success-fn #'ignore)
                           :error-fn error-fn :timeout-fn timeout-fn
                           :timeout timeout :progress-fn progress-fn))

;;;###autoload
(defun duet-rpc-notify (method &optional params)
  "Send the notification METHOD with PARAMS; there is no reply.
METHOD and PARAMS are as in `duet-rpc-request'."
  (duet-rpc--notify (duet-rpc--ensure-server) method params))

(defun duet-rpc-cancel (call)
  "Cancel CALL, an object that `duet-rpc-async-request' returned.
None of its functions will be called."
  (when (duet-rpc--finish-call call '(cancelled))
    (duet-rpc--send-cancel call)))

(defun duet-rpc-error-code (err)
  "Return the JSON-RPC code of ERR, a `duet-rpc-error', or nil."
  (nth 2 err))

(defun duet-rpc-error-data (err)
  "Return the JSON-RPC data of ERR, a `duet-rpc-error', or nil."
  (nth 3 err))


;;; Starting and stopping

;;;###autoload
(defun duet-rpc-start (&optional role interactive)
  "Start the daemon on this buffer's host, unless it is running.
You rarely need this: every call starts the daemon if necessary.

With a prefix argument, or if ROLE is `gateway', start the gateway.
If INTERACTIVE is non-nil, as it is interactively, show a message."
  ;; Not `called-interactively-p', which is nil in a transient.el menu.
  (interactive (list (and current-prefix-arg 'gateway) t))
  (let* ((server (duet-rpc--server role))
         (name (duet-rpc--server-name server)))
    (duet-rpc--with-user-errors
      (if (memq (duet-rpc--server-state server) '(starting ready))
          (message "%s is already running; %s restarts it"
                   name (duet-rpc--command-hint server 'duet-rpc-restart))
        (setf (duet-rpc--server-quick-exits server) 0)
        (duet-rpc--launch server)
        (when interactive
          (message "%s is starting; %s shows its state"
                   name (duet-rpc--command-hint server 'duet-rpc-status)))))))

;;;###autoload
(defun duet-rpc-stop (&optional role interactive)
  "Stop the daemon on this buffer's host.
Ask it to shut down, and kill it if it has not exited after two seconds.

With a prefix argument, or if ROLE is `gateway', stop the gateway and
all servers behind it.  INTERACTIVE is as in `duet-rpc-start'."
  (interactive (list (and current-prefix-arg 'gateway) t))
  (let ((server (duet-rpc--server role)))
    (duet-rpc--stop server)
    (when interactive
      (message "%s stopped; the next call starts it again"
               (duet-rpc--server-name server)))))

;;;###autoload
(defun duet-rpc-restart (&optional role interactive)
  "Stop the daemon on this buffer's host and start it again.
Use this also after it has crashed too often to be restarted by itself.

With a prefix argument, or if ROLE is `gateway', restart the gateway.
INTERACTIVE is as in `duet-rpc-start'."
  (interactive (list (and current-prefix-arg 'gateway) t))
  (duet-rpc-stop role)
  (duet-rpc-start role)
  (when interactive
    (message "%s is restarting" (duet-rpc--server-name (duet-rpc--server role)))))

;;;###autoload
(defun duet-rpc-status (&optional role interactive)
  "Return the state of the daemon on this buffer's host, a symbol.
It is `stopped', `starting', `ready', `stopping', `waiting' (to be
restarted after a crash) or `failed'.

With a prefix argument, or if ROLE is `gateway', return the state of the
gateway.  INTERACTIVE is as in `duet-rpc-start'."
  (interactive (list (and current-prefix-arg 'gateway) t))
  (let* ((server (duet-rpc--server role))
         (state (duet-rpc--server-state server))
         (pending (hash-table-count (duet-rpc--server-pending server))))
    (when interactive
      (message
       "%s: %s" (duet-rpc--server-name server)
       (pcase state
         ((and (or 'stopped 'waiting 'failed)
               (guard (duet-rpc--server-reason server)))
          (duet-rpc--server-reason server))
         ('stopped "not running; the next call starts it")
         (_ (format "%s, version %s, process %s, %s pending"
                    state (or (duet-rpc--server-version server) "unknown")
                    (process-id (duet-rpc--server-process server))
                    (if (= pending 1) "1 call" (format "%d calls" pending)))))))
    state))

;;;###autoload
(defun duet-rpc-version (&optional interactive)
  "Return the daemon's version.
If INTERACTIVE is non-nil, as it is interactively, show it."
  (interactive (list t))
  (duet-rpc--with-user-errors
    (let ((version (plist-get (duet-rpc-request "version") :version)))
      (when interactive
        (message "duet-rpc %s (duet-rpc.el %s)" version duet-rpc--version))
      version)))


;;; Other servers, through the gateway

;; The daemon and the gateway are two servers, and both may have a method
;; of the same name.  The name of the Lisp function decides which of them
;; is called.  A dynamic variable would no longer be bound when a callback
;; runs, and a keyword argument is easily forgotten.

;;;###autoload
(defun duet-rpc-gateway (&optional interactive)
  "Start the gateway on this buffer's host, unless it is running.
Behind it are the servers in the [backends] tables of your configuration.
All functions and commands for the gateway start it if necessary, except
`duet-rpc-call', which offers the tools of these servers only while the
gateway is running.

With a prefix argument, the commands for the daemon, such as
`duet-rpc-restart', `duet-rpc-stop' and `duet-rpc-show-log', act on the
gateway.

If INTERACTIVE is non-nil, as it is interactively, show what to do next."
  (interactive (list t))
  (duet-rpc-start 'gateway)
  (when interactive
    (message "M-x duet-rpc-backends lists the servers behind the gateway, \
M-x duet-rpc-call calls them")))

;;;###autoload
(cl-defun duet-rpc-gateway-request (method &optional params &key timeout)
  "Call METHOD through the gateway with PARAMS and return the result.
METHOD is NAME/method for a method of the backend NAME, NAME__tool for
one of its tools, or a method of the gateway itself, such as
gateway/status.  PARAMS and TIMEOUT, the result and the errors are as in
`duet-rpc-request'; \\[keyboard-quit] cancels the call in the backend as well.

The result of a tool is returned as its server sent it: a plist with
`:content' and so on, even if `:isError' in it says that the tool failed."
  (duet-rpc--request (duet-rpc--ensure-server 'gateway) method params
                     :timeout timeout))

;;;###autoload
(cl-defun duet-rpc-gateway-async-request (method params &key success-fn error-fn
                                                 timeout-fn timeout progress-fn)
  "Call METHOD through the gateway with PARAMS without waiting for the reply.
METHOD is as in `duet-rpc-gateway-request'.  SUCCESS-FN, ERROR-FN,
TIMEOUT-FN, TIMEOUT, PROGRESS-FN and the return value are as in
`duet-rpc-async-request'."
  (duet-rpc--async-request (duet-rpc--ensure-server 'gateway) method params
                           :success-fn (or success-fn #'ignore)
                           :error-fn error-fn :timeout-fn timeout-fn
                           :timeout timeout :progress-fn progress-fn))

;;;###autoload
(defun duet-rpc-gateway-notify (method &optional params)
  "Send the notification METHOD with PARAMS to a backend; there is no reply.
METHOD is NAME/method; PARAMS is as in `duet-rpc-request'."
  (duet-rpc--notify (duet-rpc--ensure-server 'gateway) method params))

(defvar duet-rpc--handlers (make-hash-table :test #'equal)
  "Hash table of the functions set by `duet-rpc-gateway-handle', by method.")

;;;###autoload
(defun duet-rpc-gateway-handle (method function)
  "Make FUNCTION handle requests and notifications for METHOD.
METHOD is NAME/method for a message that the backend NAME sends as
method, or gateway/stateChanged.  FUNCTION is called with the params, from
the top level, so that it may prompt the user or call other methods, and
with a `default-directory' on the gateway's host.

The reply to a request is the value that FUNCTION returns.  If FUNCTION
signals an error, the reply is an error; use `jsonrpc-error' to choose its
code.  A request that no function handles is refused immediately.

Each METHOD has one function, the last one set.  If FUNCTION is nil,
remove it."
  (if function
      (puthash method function duet-rpc--handlers)
    (remhash method duet-rpc--handlers)))


;;; Transport: the program to run

(defun duet-rpc--program-candidates ()
  "Return an alist (FILE . DESCRIPTION) of where the program may be.
Search the path for a FILE that has no directory."
  (let* ((el (and duet-rpc--file
                  (concat (file-name-sans-extension duet-rpc--file) ".el")))
         (beside (lambda (file)
                   (expand-file-name "duet-rpc.pyz" (file-name-directory file)))))
    (delete-dups
     (cond
      ((null duet-rpc-program)
       `(,@(and el
                `((,(funcall beside el) . "beside duet-rpc.el")
                  ;; Some package managers build in a directory of links.
                  ,@(unless (equal el (file-truename el))
                      `((,(funcall beside (file-truename el))
                         . "beside the file that duet-rpc.el links to")))))
         ("duet-rpc" . "on the path")))
      ((file-name-directory duet-rpc-program)
       `((,(expand-file-name duet-rpc-program "~/") . "the option `duet-rpc-program'")))
      (t `((,duet-rpc-program . "the option `duet-rpc-program', on the path")))))))

(defun duet-rpc--find-program (server)
  "Return the first candidate program that SERVER's host can run.
Signal `duet-rpc-error' if there is none."
  (let ((remote (not (equal (duet-rpc--server-host server) ""))))
    (or (cl-loop
         for (file) in (duet-rpc--program-candidates)
         thereis (cond
                  ((not (file-name-directory file)) (executable-find file remote))
                  ((not (duet-rpc--python-program-p file))
                   ;; Unlike a .pyz, it may not work if copied to another host.
                   (let ((name (concat (duet-rpc--server-host server) file)))
                     (and (file-executable-p name) (not (file-directory-p name)) file)))
                  ((file-regular-p file)
                   (if remote
                       (duet-rpc--copy-to-host file (duet-rpc--server-host server))
                     file))))
        (duet-rpc--signal-program-not-found server))))

(defun duet-rpc--signal-program-not-found (server)
  "Signal a `duet-rpc-error' that lists where SERVER's program was sought."
  (let ((host (duet-rpc--server-host server)))
    (signal
     'duet-rpc-error
     (list
      (concat
       "Cannot find the program"
       (unless (equal host "") (concat " for " host))
       ".  Looked for\n"
       (mapconcat (lambda (place)
                    (format "  %s (%s%s)\n" (car place) (cdr place)
                            (if (file-name-directory (car place))
                                ""
                              (concat ": " (string-join (exec-path) " ")))))
                  (duet-rpc--program-candidates) "")
       "Put duet-rpc.pyz beside duet-rpc.el, or the command duet-rpc on the path, \
or set `duet-rpc-program'")))))

(defun duet-rpc--check-options ()
  "Signal `duet-rpc-error' if the value of an option is invalid."
  (when-let ((text (duet-rpc--invalid-option)))
    (signal 'duet-rpc-error (list text))))

(defun duet-rpc--invalid-option ()
  "Return a message about the first option whose value is invalid, or nil."
  (cl-flet ((strings-p (value)
              (and (proper-list-p value) (cl-every #'stringp value))))
    (cl-loop
     for (option valid expected) in
     `((duet-rpc-program
        ,(or (stringp duet-rpc-program) (strings-p duet-rpc-program))
        "nil, a string or a list of strings")
       (duet-rpc-python ,(stringp duet-rpc-python) "a string")
       (duet-rpc-arguments ,(strings-p duet-rpc-arguments) "a list of strings")
       (duet-rpc-gateway-command
        ,(strings-p duet-rpc-gateway-command) "nil or a list of strings")
       (duet-rpc-directory ,(or (null duet-rpc-directory) (stringp duet-rpc-directory))
                           "nil or a string")
       (duet-rpc-timeout ,(numberp duet-rpc-timeout) "a number")
       (duet-rpc-events-size ,(natnump duet-rpc-events-size) "a number"))
     unless valid
     return (format "The option `%s' is %S; it must be %s"
                    option (symbol-value option) expected))))

(defun duet-rpc--command (server)
  "Return the command line for SERVER, as a list of strings."
  (let* ((gateway (duet-rpc--server-role server))
         (whole (if gateway duet-rpc-gateway-command duet-rpc-program))
         (command
          (cond
           ((consp whole) whole)
           ((consp duet-rpc-program)
            (signal 'duet-rpc-error
                    '("`duet-rpc-program' is a complete command for the daemon; \
set `duet-rpc-gateway-command' to the command for the gateway")))
           (t (let ((program (duet-rpc--find-program server)))
                `(,@(and (duet-rpc--python-program-p program) (list duet-rpc-python))
                  ,program
                  ,@(if gateway '("gateway") duet-rpc-arguments)))))))
    (if (equal (duet-rpc--server-host server) "")
        command
      ;; TRAMP in Emacs 28.2 hangs if the terminal is not in raw mode.
      (list "sh" "-c" (concat "stty raw -echo > /dev/null 2>&1; "
                              "printf 'duet-rpc %s\\n' ready; exec "
                              (mapconcat #'shell-quote-argument command " "))))))

(defun duet-rpc--await-ready (process)
  "Wait until the terminal of PROCESS, on another host, is in raw mode.
The shell that starts it might read anything sent earlier as commands."
  (let ((output "")
        (end (+ (float-time) duet-rpc-timeout)))
    (set-process-filter process (lambda (_ text) (setq output (concat output text))))
    (while (and (not (string-search "duet-rpc ready" output))
                (process-live-p process)
                (< (float-time) end))
      (accept-process-output process 0.1))))

(defun duet-rpc--python-program-p (file)
  "Return non-nil if FILE is to be run by Python."
  (member (file-name-extension file) '("pyz" "py")))

(defun duet-rpc--copy-to-host (file host)
  "Copy FILE to HOST, unless it is already there; return its name on HOST."
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
      ;; Rename it when it is complete; two Emacsen may be copying at once.
      (let ((part (make-temp-name (concat target "."))))
        (copy-file file part)
        (rename-file part target t)))
    (file-local-name target)))


;;; Transport: the process

(defconst duet-rpc--quick-exit-seconds 10
  "A crash within this many seconds of the start counts as a quick exit.")

(defconst duet-rpc--max-quick-exits 5
  "Number of quick exits in a row after which a server is not restarted.")

(defun duet-rpc--server (&optional role)
  "Return the server with ROLE on the current buffer's host, running or not."
  (let* ((host (substring-no-properties (or (file-remote-p default-directory) "")))
         (key (cons host role)))
    (or (gethash key duet-rpc--servers)
        (puthash key
                 (duet-rpc--make-server
                  :host host :role role
                  :name (concat "duet-rpc" (and role (format " %s" role))
                                (unless (equal host "") (concat " " host))))
                 duet-rpc--servers))))

(defun duet-rpc--command-hint (server command)
  "Return the keys to type to run COMMAND on SERVER, as text."
  (format (if (duet-rpc--server-role server) "C-u M-x %s" "M-x %s") command))

(defun duet-rpc--ensure-server (&optional role)
  "Return the server with ROLE on the current buffer's host.
Start it if necessary."
  (let ((server (duet-rpc--server role)))
    (unless (and (duet-rpc--running-p server)
                 (not (eq (duet-rpc--server-state server) 'stopping)))
      (if (eq (duet-rpc--server-state server) 'failed)
          (signal 'duet-rpc-error (list (duet-rpc--server-reason server)))
        (duet-rpc--launch server)))
    server))

(defun duet-rpc--running-p (server)
  "Return non-nil if SERVER's process is running.
If it has just exited, handle that first."
  (when-let ((process (duet-rpc--server-process server)))
    (or (process-live-p process)
        (progn
          ;; It has just exited.  This runs its sentinel now ...
          (delete-process process)
          ;; ... unless it has none yet, or that is already running and
          ;; waiting for stderr.
          (duet-rpc--handle-exit server #'ignore process nil)))))

(defun duet-rpc--server-version (server)
  "Return the version that SERVER reported, or nil."
  (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :version))

(defun duet-rpc--set-state (server state)
  "Set SERVER's state to STATE and update what displays it."
  (setf (duet-rpc--server-state server) state)
  (when (duet-rpc--server-role server)
    (duet-rpc--mark-backends-gone server))
  (duet-rpc--update-mode-line))

(defun duet-rpc--cancel-restart (server)
  "Cancel the restart of SERVER that is scheduled, if any."
  (when (duet-rpc--server-restart-timer server)
    (cancel-timer (duet-rpc--server-restart-timer server))
    (setf (duet-rpc--server-restart-timer server) nil
          (duet-rpc--server-reason server) nil)
    (duet-rpc--set-state server 'stopped)))

(defun duet-rpc--stop (server)
  "Ask SERVER to shut down; kill its process after two seconds."
  (let* ((running (duet-rpc--running-p server)) ; this may schedule a restart
         (process (duet-rpc--server-process server))
         (end (+ (float-time) 2)))
    (duet-rpc--cancel-restart server)
    (setf (duet-rpc--server-reason server) nil)
    (if (not running)
        (duet-rpc--set-state server 'stopped)
      (duet-rpc--set-state server 'stopping)
      (unwind-protect
          (progn
            ;; Sending blocks if the server does not read.
            (with-timeout (2)
              (ignore-errors
                (duet-rpc--send-request server "shutdown" nil :timeout 2)
                (process-send-eof process)))
            (while (and (process-live-p process) (< (float-time) end))
              (accept-process-output process 0.05)))
        (delete-process process)))))

(defun duet-rpc-unload-function ()
  "Stop all servers and clear the mode line, for `unload-feature'."
  (duet-rpc-mode-line-mode -1)
  (mapc #'duet-rpc--stop (hash-table-values duet-rpc--servers))
  nil)

(defun duet-rpc--launch (server)
  "Start SERVER's process."
  (duet-rpc--cancel-restart server)
  (duet-rpc--check-options)
  (when (eq (duet-rpc--server-state server) 'stopping)
    (duet-rpc--stop server)) ; only one process at a time
  ;; The server is for all buffers, so do not start it in the caller's,
  ;; where `process-environment' or `exec-path' may be buffer-local.
  (with-temp-buffer
    (setq default-directory (duet-rpc--directory server))
    (duet-rpc--launch-process server)))

(defun duet-rpc--directory (server)
  "Return the directory to run SERVER in."
  (let* ((host (duet-rpc--server-host server))
         (directory (concat host (file-local-name (or duet-rpc-directory "~/")))))
    (cond
     ((file-directory-p directory) (file-name-as-directory (expand-file-name directory)))
     (duet-rpc-directory
      (signal 'duet-rpc-error
              (list (format "Directory %s not found; set `duet-rpc-directory' \
to an existing one, or to nil" directory))))
     (t (concat host "/")))))

(defun duet-rpc--launch-process (server)
  "Start SERVER's process in the current directory."
  (let* ((host (duet-rpc--server-host server))
         (name (duet-rpc--server-name server))
         (command (duet-rpc--command server))
         ;; A quit in the middle would leave a process that this library
         ;; does not know about.  But connecting to another host may take
         ;; long, and must remain possible to quit.
         (inhibit-quit (or inhibit-quit (equal host "")))
         (process nil)
         (start
          (lambda ()
            (let ((process-adaptive-read-buffering nil))
              (setq process
                    (make-process
                     :name name :command command :connection-type 'pipe
                     :coding 'utf-8-emacs-unix :noquery t :file-handler t
                     ;; jsonrpc.el expects this name.
                     :stderr (get-buffer-create (format "*%s stderr*" name)))))
            (unless (equal host "")
              ;; TRAMP's sentinel cleans up, and deletes the end of stderr
              ;; with it.  Run it later, in `duet-rpc--handle-exit'.
              (process-put process 'duet-rpc-tramp-sentinel (process-sentinel process))
              (set-process-sentinel process #'ignore)
              (duet-rpc--await-ready process))
            process))
         (connection
          (condition-case err
              (apply #'make-instance 'duet-rpc--connection
                     :name name :process start
                     :notification-dispatcher
                     (lambda (_ method params)
                       (duet-rpc--dispatch-notification server method params))
                     :request-dispatcher
                     (lambda (_ method params)
                       (duet-rpc--dispatch-request server method params))
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
          (duet-rpc--server-start-time server) (float-time)
          (duet-rpc--server-info server) nil
          (duet-rpc--server-reason server) nil)
    (duet-rpc--set-state server 'starting)
    (duet-rpc--redirect-stderr server (jsonrpc-stderr-buffer connection))
    (duet-rpc--log server "started process %s: %s"
                   (process-id process) (string-join command " "))
    (add-function :around (process-filter process)
                  (lambda (next process string)
                    (duet-rpc--filter server next process string)))
    (add-function :around (process-sentinel process)
                  (lambda (next process event)
                    (duet-rpc--sentinel server next process event)))
    (duet-rpc--send-request
     server "initialize" nil :buffer t
     :success-fn (lambda (info) (duet-rpc--handle-initialize server info))
     :error-fn (lambda (_)
                 ;; Unless the error says that the process has exited.
                 (when (duet-rpc--server-process server)
                   (duet-rpc--handle-initialize server nil))))))

(defun duet-rpc--handle-initialize (server info)
  "Record INFO, SERVER's result of `initialize' or nil; SERVER is ready.
Any JSON-RPC server will do, but the version of duet-rpc must be
compatible with this library."
  (when (eq (duet-rpc--server-state server) 'starting)
    (setf (duet-rpc--server-info server) (and (listp info) info))
    (duet-rpc--set-state server 'ready)
    (when (duet-rpc--duet-rpc-server-p server)
      (let ((protocol (plist-get info :protocolVersion))
            (version (duet-rpc--server-version server))
            (remedy "Install duet-rpc.pyz and duet-rpc.el from the same release; \
M-x duet-rpc-doctor shows where each of them is"))
        (if (not (equal protocol "2.0"))
            (duet-rpc--fail-server
             server (format "%s speaks protocol %s, duet-rpc.el %s \
speaks 2.0.  %s" (duet-rpc--server-name server) protocol duet-rpc--version remedy))
          (unless (equal (duet-rpc--major-minor version)
                         (duet-rpc--major-minor duet-rpc--version))
            (duet-rpc--run-soon
             (lambda ()
               (display-warning
                'duet-rpc (format "%s is version %s, duet-rpc.el is %s.  %s"
                                  (duet-rpc--server-name server) version
                                  duet-rpc--version remedy))))))))))

(defun duet-rpc--duet-rpc-server-p (server)
  "Return non-nil if SERVER has identified itself as duet-rpc."
  (equal (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :name)
         "duet-rpc"))

(defun duet-rpc--major-minor (version)
  "Return the major and minor part of VERSION, or nil.
It must be the same in this library and the program."
  (and (stringp version)
       (string-match "\\`[0-9]+\\.[0-9]+" version)
       (match-string 0 version)))

(defun duet-rpc--fail-server (server reason)
  "Stop SERVER because of REASON, and do not restart it."
  (let ((process (duet-rpc--server-process server)))
    (setf (duet-rpc--server-reason server) reason)
    (duet-rpc--set-state server 'failed)
    (duet-rpc--fail-pending server reason)
    (duet-rpc--run-soon (lambda () (delete-process process)))))

(defun duet-rpc--fail-pending (server text)
  "Finish every pending call of SERVER with an error whose message is TEXT."
  (dolist (call (hash-table-values (duet-rpc--server-pending server)))
    (duet-rpc--finish-call call `(error (:code -1 :message ,text)))))

(defun duet-rpc--sentinel (server next process event)
  "Handle the exit of SERVER's PROCESS, once its stderr has been read.
EVENT is passed on to NEXT, jsonrpc.el's sentinel."
  (when (and (not (process-live-p process))
             (eq process (duet-rpc--server-process server)))
    (let ((stderr (get-buffer-process
                   (jsonrpc-stderr-buffer (duet-rpc--server-connection server))))
          (pause (if (equal (duet-rpc--server-host server) "") 0.3 1))
          (end (+ (float-time) 1)))
      ;; The end of stderr may not have been read yet.  But do not wait
      ;; long: a child of the server may keep writing to it.
      (while (and stderr
                  (accept-process-output stderr pause nil t)
                  (< (float-time) end)))
      (duet-rpc--handle-exit server next process event))))

(defun duet-rpc--handle-exit (server next process event)
  "Handle the exit of SERVER's PROCESS, unless that has been done; return nil.
While the sentinel waits for stderr, a timer may make a call; the exit
must then be handled before a new process is started.  NEXT and EVENT are
as in `duet-rpc--sentinel'."
  (when (eq process (duet-rpc--server-process server))
    (let ((buffers (list (process-buffer process)
                         (jsonrpc-stderr-buffer (duet-rpc--server-connection server)))))
      (setf (duet-rpc--server-process server) nil)
      (duet-rpc--process-exited server process)
      ;; Even an inhibited message clears the echo area.
      (let ((shown (current-message)) (message-log-max nil))
        (let ((inhibit-message t))
          (funcall next process event))
        (when shown (message "%s" shown)))
      (when-let ((clean-up (process-get process 'duet-rpc-tramp-sentinel)))
        (funcall clean-up process event))
      (dolist (buffer buffers)
        (when (buffer-live-p buffer) (kill-buffer buffer)))
      nil)))

(defun duet-rpc--process-exited (server process)
  "Fail every pending call of SERVER, whose PROCESS has exited.
Set SERVER's new state, and restart it after a crash."
  (let* ((name (duet-rpc--server-name server))
         (code (process-exit-status process))
         (signal (eq (process-status process) 'signal))
         (tail (duet-rpc--stderr-tail server 5))
         (how (cond (signal (format "was killed by signal %d" code))
                    ((string-match-p "Python is too old" tail)
                     "needs a newer Python (see `duet-rpc-python')")
                    ;; Emacs sets this code when it cannot write to the process.
                    ((= code 256) "closed its input")
                    ((= code 127)
                     "exited with code 127, command not found (see `duet-rpc-python')")
                    (t (format "exited with code %d" code))))
         (stderr (if (equal tail "")
                     ""
                   (format ".  End of its stderr (%s shows all):\n%s"
                           (duet-rpc--command-hint server 'duet-rpc-show-log) tail))))
    (duet-rpc--log server "%s" how)
    (cond
     ((eq (duet-rpc--server-state server) 'failed)
      (duet-rpc--fail-pending server (duet-rpc--server-reason server)))
     ((eq (duet-rpc--server-state server) 'stopping)
      (duet-rpc--fail-pending server (format "%s was stopped before it answered" name))
      (duet-rpc--set-state server 'stopped))
     ((and (= code 0) (not signal))
      (duet-rpc--fail-pending server (format "%s exited before it answered" name))
      (duet-rpc--set-state server 'stopped))
     (t
      (duet-rpc--fail-pending
       server (format "%s %s before it answered%s" name how stderr))
      (duet-rpc--handle-crash server how stderr)))))

(defun duet-rpc--handle-crash (server how stderr)
  "Schedule a restart of SERVER, or give up after too many quick exits.
HOW says how its process exited; STDERR is text with the end of stderr."
  (let* ((name (duet-rpc--server-name server))
         (quick (< (- (float-time) (duet-rpc--server-start-time server))
                   duet-rpc--quick-exit-seconds))
         (exits (setf (duet-rpc--server-quick-exits server)
                      (if quick (1+ (duet-rpc--server-quick-exits server)) 1)))
         (delay (expt 2 (1- exits))))
    (setf (duet-rpc--server-reason server)
          (cond
           ((>= exits duet-rpc--max-quick-exits)
            (format "%s %s, %d times in a row, and will not be restarted; \
fix the cause, then %s%s" name how exits
(duet-rpc--command-hint server 'duet-rpc-restart) stderr))
           ;; A restart from a timer must not prompt for a password.
           ((not (equal (duet-rpc--server-host server) ""))
            (format "%s %s; the next call starts it again%s" name how stderr))
           (t (format "%s %s; restarting in %d s%s" name how delay stderr))))
    (message "%s" (duet-rpc--server-reason server))
    (cond
     ((>= exits duet-rpc--max-quick-exits)
      (duet-rpc--set-state server 'failed))
     ((equal (duet-rpc--server-host server) "")
      (duet-rpc--set-state server 'waiting)
      (setf (duet-rpc--server-restart-timer server)
            (run-with-timer delay nil
                            (lambda ()
                              (condition-case err
                                  (duet-rpc--launch server)
                                (duet-rpc-error (message "%s" (cadr err))))))))
     (t (duet-rpc--set-state server 'stopped)))))


;;; Transport: the server's output

(defun duet-rpc--filter (server next process string)
  "Pass STRING, output of SERVER's PROCESS, to NEXT, jsonrpc.el's filter.
Skip stray output: jsonrpc.el looks for a header in the first 100 bytes
only, and would stop reading for good after more of it."
  (process-put process 'duet-rpc-last-output (float-time))
  (while string
    (setq string
          (condition-case err
              (progn (cl-letf (((symbol-function 'jsonrpc--json-read)
                                (lambda () (duet-rpc--read-message server))))
                       (funcall next process string))
                     (and (duet-rpc--skip-stray-output server process) ""))
            ;; jsonrpc.el signals an error on a message with an unknown
            ;; member; version 1.0.14 then leaves what follows unread.
            (error
             (duet-rpc--log server "jsonrpc.el cannot process a message: %s"
                            (error-message-string err))
             (and (> (buffer-size (process-buffer process)) 0) ""))))))

(defun duet-rpc--read-message (server)
  "Read a message from SERVER after point and return it."
  (let* ((message (duet-rpc--read-json))
         (err (plist-get message :error)))
    (when (and err (not (plist-get message :id)))
      (duet-rpc--handle-null-id-error server err))
    message))

(defun duet-rpc--handle-null-id-error (server err)
  "Record ERR, an error with id null from SERVER, for each pending call.
If it can only belong to one of them, finish that one."
  (let ((calls (hash-table-values (duet-rpc--server-pending server))))
    (dolist (call calls)
      (setf (duet-rpc--call-null-id-error call) (plist-get err :message)))
    ;; The server does not read a request that is too large, and so does
    ;; not know its id.
    (when (and (equal (plist-get (plist-get err :data) :reason) "oversize")
               (= 1 (length calls)))
      (duet-rpc--finish-call (car calls) (list 'error err)))))

(defun duet-rpc--read-json ()
  "Read the JSON after point and return it as Lisp.
Fall back on json.el, which is slower, for what Emacs's own parser
refuses: large integers, lone surrogates, or null characters in Emacs 28.
jsonrpc.el would drop such a message and let its call time out."
  (let ((begin (point)))
    (condition-case nil
        (json-parse-buffer :object-type 'plist :null-object nil
                           :false-object :json-false)
      (error
       (goto-char begin)
       (let ((json-object-type 'plist)
             (json-array-type 'vector)
             (json-null nil)
             (json-false :json-false))
         (json-read))))))

(defconst duet-rpc--header "Content-Length: *[0-9]+\r\n"
  "Regexp that matches the header of a message.
It cannot match inside a message: in JSON text, a carriage return cannot
appear in a string, and the name cannot appear outside one.")

(defun duet-rpc--skip-stray-output (server process)
  "Delete output of SERVER's PROCESS that precedes the next header.
Return non-nil if there was any.  Show a message the first time."
  (when (buffer-live-p (process-buffer process))
    (with-current-buffer (process-buffer process)
      ;; Point is after the header while a message is being read.
      (when (and (bobp) (> (buffer-size) 100))
        (let ((next (duet-rpc--next-header)))
          (when (or next (> (buffer-size) 100000))
            (let ((text (duet-rpc--discard-output server (or next (- (point-max) 100)))))
              (unless (process-get process 'duet-rpc-stray-output-reported)
                (process-put process 'duet-rpc-stray-output-reported t)
                (message "duet-rpc: %s; %s shows further ones" text
                         (duet-rpc--command-hint server 'duet-rpc-show-log))))
            t))))))

(defun duet-rpc--next-header ()
  "Return the position of the next header after point, or nil."
  (save-excursion
    (unless (eobp) (forward-char 1))
    (and (re-search-forward duet-rpc--header nil t) (match-beginning 0))))

(defun duet-rpc--discard-output (server end)
  "Delete the unread output of SERVER up to END; return a text about it.
Write that to the log as well."
  (let ((bytes (buffer-substring-no-properties (point-min) end))
        (inhibit-read-only t)
        (print-escape-newlines t)
        (print-escape-control-characters t))
    (delete-region (point-min) end)
    (goto-char (point-min))
    (setf (slot-value (duet-rpc--server-connection server) '-expected-bytes) nil)
    (let ((text (format "skipped %d stray bytes on the server's stdout: %S"
                        (string-bytes bytes)
                        (truncate-string-to-width bytes 60 nil nil "..."))))
      (duet-rpc--log server "%s" text)
      text)))

(defun duet-rpc--resynchronize (server)
  "Discard unread output of SERVER that will never become a message.
Return a text about it, or nil if there was none.  Keep a message that is
still arriving."
  (when-let ((process (duet-rpc--server-process server))
             (buffer (process-buffer process)))
    (when (and (buffer-live-p buffer) (> (buffer-size buffer) 0))
      (with-current-buffer buffer
        (let ((next (duet-rpc--next-header)))
          (when (or next
                    (> (- (float-time) (process-get process 'duet-rpc-last-output)) 1))
            (prog1 (duet-rpc--discard-output server (or next (point-max)))
              (funcall (process-filter process) process ""))))))))


;;; Transport: the log

(defun duet-rpc--log-buffer (server)
  "Return the buffer of SERVER's log, created if necessary."
  (let ((name (format "*%s log*" (duet-rpc--server-name server))))
    (or (get-buffer name)
        (with-current-buffer (get-buffer-create name)
          (special-mode)
          (buffer-disable-undo)
          (current-buffer)))))

(defun duet-rpc--append-log (server text)
  "Append TEXT to SERVER's log, and limit the size of the log."
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
  "Write a line from Emacs, FORMAT with ARGS, to SERVER's log."
  (duet-rpc--append-log
   server (format "%s emacs: %s\n" (format-time-string "%FT%T")
                  (apply #'format format args))))

(defun duet-rpc--redirect-stderr (server buffer)
  "Redirect SERVER's stderr from BUFFER to its log."
  (with-current-buffer (duet-rpc--log-buffer server)
    (setf (duet-rpc--server-stderr-start server) (copy-marker (point-max))))
  (duet-rpc--append-log server (with-current-buffer buffer (buffer-string)))
  (when-let ((stderr (get-buffer-process buffer)))
    (set-process-coding-system stderr 'utf-8-unix 'utf-8-unix)
    (set-process-query-on-exit-flag stderr nil)
    (set-process-sentinel stderr #'ignore)
    (set-process-filter stderr
                        (lambda (_ text) (duet-rpc--append-log server text)))))

(defun duet-rpc--stderr-tail (server lines)
  "Return the last LINES lines of stderr of SERVER's current process."
  (with-current-buffer (duet-rpc--log-buffer server)
    (let* ((tail (duet-rpc--server-stderr-start server))
           (all (split-string
                 (buffer-substring-no-properties
                  ;; The log buffer may have been killed since.
                  (if (and tail (marker-position tail)) tail (point-min))
                  (point-max))
                 "\n" t)))
      (string-join
       (last (cl-remove-if (lambda (line) (string-match-p "\\`[^ ]+ emacs: " line))
                           all)
             lines)
       "\n"))))


;;; Requests and replies

(defvar duet-rpc--last-token 0
  "Token of the last call; unique among all servers.")

(defvar duet-rpc--sent-id nil
  "JSON-RPC id of the request being sent.")

(defvar duet-rpc--queue nil
  "Functions to call from the top level, oldest first.")

(defclass duet-rpc--connection (jsonrpc-process-connection) ()
  :documentation "A jsonrpc.el connection that records the ids of requests.")

(cl-defstruct (duet-rpc--incoming-request (:constructor duet-rpc--make-incoming-request)
                                          (:copier nil))
  "A request from a backend, and the function that will handle it."
  server method params function)

(cl-defmethod jsonrpc-connection-send ((connection duet-rpc--connection)
                                       &rest args)
  "Send ARGS over CONNECTION; record the id, and omit nil params.
jsonrpc.el would send nil params as null.  If ARGS are a reply whose
result is a `duet-rpc--incoming-request', handle that later instead."
  (let ((id (plist-get args :id))
        (result (plist-get args :result)))
    (if (duet-rpc--incoming-request-p result)
        (duet-rpc--run-soon (lambda () (duet-rpc--reply connection id result)))
      ;; While a request is being sent, a timer may send a notification,
      ;; which has no id, or a reply, whose id is the other side's.
      (when (and id (not (plist-member args :result)) (not (plist-member args :error)))
        (setq duet-rpc--sent-id id))
      (apply #'cl-call-next-method connection
             (if (plist-get args :params)
                 args
               (cl-loop for (key value) on args by #'cddr
                        unless (eq key :params) append (list key value)))))))

(defun duet-rpc--method-symbol (method)
  "Return METHOD as a symbol, which jsonrpc.el requires."
  (if (stringp method) (intern method) method))

(defun duet-rpc--notify (server method params)
  "Send SERVER the notification METHOD with PARAMS."
  (duet-rpc--with-send-errors server method
    (jsonrpc-notify (duet-rpc--server-connection server)
                    (duet-rpc--method-symbol method) params)))

(defun duet-rpc--send-request (server method params &rest slots)
  "Send SERVER a request for METHOD with PARAMS; return the call.
SLOTS are further slots of the call, as keyword arguments."
  (let* ((token (cl-incf duet-rpc--last-token))
         (call (apply #'duet-rpc--make-call
                      :server server :method method :token token slots))
         (calls (duet-rpc--server-pending server))
         (duet-rpc--sent-id nil))
    (unless (duet-rpc--call-timeout call)
      (duet-rpc--check-options)
      (setf (duet-rpc--call-timeout call) duet-rpc-timeout))
    (when (and (duet-rpc--call-progress-fn call) (listp params))
      (setq params `(,@params :_meta (:progressToken ,token))))
    (puthash token call calls)
    (unwind-protect
        (duet-rpc--with-send-errors server method
          ;; No timeout here: progress extends it, and jsonrpc.el does not
          ;; know about progress.
          (jsonrpc-async-request
           (duet-rpc--server-connection server) (duet-rpc--method-symbol method) params
           :success-fn (lambda (result)
                         (duet-rpc--finish-call call (list 'result result)))
           :error-fn (lambda (err) (duet-rpc--finish-call call (list 'error err)))
           :timeout-fn #'ignore :timeout nil)
          (setf (duet-rpc--call-id call) duet-rpc--sent-id))
      (unless (duet-rpc--call-id call)
        (duet-rpc--abort-send call duet-rpc--sent-id)))
    (duet-rpc--pending-changed call)
    call))

(defun duet-rpc--async-request (server method params &rest slots)
  "Call METHOD of SERVER with PARAMS, as `duet-rpc-async-request' does.
SLOTS are further slots of the call, `:success-fn' among them."
  (let ((call (apply #'duet-rpc--send-request server method params
                     :buffer (current-buffer) slots)))
    (duet-rpc--schedule-deadline-check server (duet-rpc--set-deadline call))
    call))

(defun duet-rpc--abort-send (call id)
  "Cancel CALL, which was interrupted while being sent; ID is its id, if any.
Emacs keeps the part that has not been written and sends it before
anything else, so the server still receives the whole request."
  (duet-rpc--finish-call call '(cancelled))
  (when id
    (setf (duet-rpc--call-id call) id)
    ;; The pipe may be full, and the server not reading.
    (with-timeout (0.5)
      (duet-rpc--send-cancel call))))

(defun duet-rpc--signal-send-error (server method err)
  "Signal a `duet-rpc-error': METHOD was not sent to SERVER because of ERR."
  (unless (duet-rpc--running-p server)
    (setq err (list 'error (or (duet-rpc--server-reason server)
                               "the server has exited"))))
  (signal 'duet-rpc-error
          (list (format "%s: cannot be sent: %s" method (error-message-string err)))))

(cl-defun duet-rpc--request (server method params &key timeout progress-fn)
  "Call METHOD of SERVER with PARAMS, as `duet-rpc-request' does.
TIMEOUT and PROGRESS-FN are as in `duet-rpc-async-request'."
  (let ((call (duet-rpc--send-request server method params
                                      :buffer (current-buffer) :timeout timeout
                                      :progress-fn progress-fn)))
    (duet-rpc--wait-for-reply call)
    (pcase (duet-rpc--call-outcome call)
      (`(result ,result) result)
      (`(error ,err)
       (signal 'duet-rpc-error
               `(,(duet-rpc--format-error method err) ,(plist-get err :code)
                 ,@(when-let ((data (plist-get err :data))) (list data)))))
      (`(timeout ,text) (signal 'duet-rpc-timeout (list text))))))

(defun duet-rpc--wait-for-reply (call)
  "Wait until CALL has its outcome; cancel it if the wait is interrupted."
  (let ((process (duet-rpc--server-process (duet-rpc--call-server call))))
    (duet-rpc--set-deadline call)
    (unwind-protect
        ;; In timers and process filters quitting is inhibited, but a
        ;; server that hangs must not hang Emacs there either.
        (let ((inhibit-quit nil))
          (while (progn
                   ;; Return often: the reply may be read by a timer that
                   ;; runs in here.
                   (accept-process-output (and (process-live-p process) process) 0.1)
                   (not (duet-rpc--call-outcome call)))
            (when (> (float-time) (duet-rpc--call-deadline call))
              (duet-rpc--time-out-call call))))
      ;; A second C-g must not interrupt the cancelling.
      (let ((inhibit-quit t))
        (duet-rpc-cancel call)))))

(defun duet-rpc--finish-call (call outcome)
  "Set the outcome of CALL to OUTCOME, run its callback and return t.
Return nil if CALL has an outcome already."
  (unless (duet-rpc--call-outcome call)
    (setf (duet-rpc--call-outcome call) outcome)
    (remhash (duet-rpc--call-token call)
             (duet-rpc--server-pending (duet-rpc--call-server call)))
    (when (and (eq (car outcome) 'result)
               (equal (format "%s" (duet-rpc--call-method call)) "shutdown")
               (duet-rpc--duet-rpc-server-p (duet-rpc--call-server call)))
      (duet-rpc--set-state (duet-rpc--call-server call) 'stopping))
    (when (duet-rpc--call-success-fn call) ; nil for a synchronous call
      (pcase outcome
        (`(result ,result)
         (duet-rpc--run-callback call (duet-rpc--call-success-fn call) result))
        (`(error ,err)
         (duet-rpc--run-callback
          call (or (duet-rpc--call-error-fn call)
                   (lambda (err)
                     (message "duet-rpc: %s"
                              (duet-rpc--format-error
                               (duet-rpc--call-method call) err))))
          err))
        (`(timeout ,text)
         (duet-rpc--run-callback
          call (or (duet-rpc--call-timeout-fn call)
                   (lambda () (message "duet-rpc: %s" text)))))))
    (duet-rpc--pending-changed call)
    t))

(defun duet-rpc--pending-changed (call)
  "Update the displays of pending requests: CALL was sent or finished."
  (let ((server (duet-rpc--call-server call)))
    (duet-rpc--update-mode-line)
    ;; The list of backends shows pending calls, except its own.
    (when (and (duet-rpc--server-role server)
               (not (equal (duet-rpc--call-method call) "gateway/status")))
      (duet-rpc--refresh-backends-soon server))))

(defun duet-rpc--run-callback (call function &rest args)
  "Call FUNCTION with ARGS in the buffer of CALL, from the top level.
This may be a process filter, in which FUNCTION could not wait for another
reply.  If the buffer of CALL is t, call FUNCTION immediately."
  (let ((buffer (duet-rpc--call-buffer call)))
    (if (eq buffer t)
        (apply function args)
      (duet-rpc--run-soon
       (lambda ()
         (when (buffer-live-p buffer)
           (with-current-buffer buffer
             (condition-case-unless-debug err
                 (with-local-quit (apply function args))
               (error
                (message "duet-rpc: callback of %s failed: %s"
                         (duet-rpc--call-method call)
                         (error-message-string err)))))))))))

(defun duet-rpc--run-soon (function)
  "Call FUNCTION from the top level, after those queued earlier."
  (setq duet-rpc--queue (nconc duet-rpc--queue (list function)))
  (run-at-time 0 nil (lambda () (funcall (or (pop duet-rpc--queue) #'ignore)))))

(defun duet-rpc--send-cancel (call)
  "Notify the server that CALL is cancelled."
  (let ((server (duet-rpc--call-server call)))
    (when (duet-rpc--running-p server)
      (ignore-errors
        (jsonrpc-notify (duet-rpc--server-connection server)
                        '$/cancelRequest (list :id (duet-rpc--call-id call)))))))

(defun duet-rpc--set-deadline (call)
  "Set the deadline of CALL, its timeout counted from now; return it."
  (setf (duet-rpc--call-deadline call)
        (+ (float-time) (duet-rpc--call-timeout call))))

(defun duet-rpc--schedule-deadline-check (server time)
  "Make sure that SERVER's deadlines are checked no later than TIME.
There is one timer for all calls: thousands would slow Emacs down."
  (let ((scheduled (duet-rpc--server-deadline-timer server)))
    (when (or (not scheduled) (< time (car scheduled)))
      (when scheduled (cancel-timer (cdr scheduled)))
      (setf (duet-rpc--server-deadline-timer server)
            (cons time (run-with-timer (max 0 (- time (float-time))) nil
                                       #'duet-rpc--check-deadlines server))))))

(defun duet-rpc--check-deadlines (server &optional again)
  "Time out every call of SERVER that is past its deadline.
If Emacs was busy, the replies may be in the pipe: if there is output to
read, read it and check once more.  AGAIN is non-nil that second time."
  (setf (duet-rpc--server-deadline-timer server) nil)
  (if (and (not again)
           (duet-rpc--running-p server)
           (accept-process-output (duet-rpc--server-process server) 0 nil 0))
      (setf (duet-rpc--server-deadline-timer server)
            (cons (+ (float-time) 0.2)
                  (run-with-timer 0.2 nil #'duet-rpc--check-deadlines server t)))
    (let ((next nil))
      (dolist (call (hash-table-values (duet-rpc--server-pending server)))
        (when-let ((deadline (duet-rpc--call-deadline call)))
          (if (<= deadline (float-time))
              (duet-rpc--time-out-call call)
            (setq next (min deadline (or next deadline))))))
      (when next (duet-rpc--schedule-deadline-check server next)))))

(defun duet-rpc--time-out-call (call)
  "Finish CALL with a timeout, and cancel it on the server."
  (let* ((server (duet-rpc--call-server call))
         (text (format "%s: no answer within %s s"
                       (duet-rpc--call-method call) (duet-rpc--call-timeout call)))
         (stuck (duet-rpc--resynchronize server))
         (null-id-error (duet-rpc--call-null-id-error call)))
    (when (duet-rpc--finish-call
           call
           (list 'timeout
                 (concat text
                         (and stuck (concat "; " stuck))
                         (and null-id-error
                              (format "; meanwhile the server reported: %s"
                                      null-id-error)))))
      (duet-rpc--send-cancel call))))

(defun duet-rpc--format-error (method err)
  "Return a text about ERR, the JSON-RPC error object in METHOD's reply."
  (let* ((message (format "%s" (plist-get err :message)))
         (data (plist-get err :data))
         (expected (and (proper-list-p data) (plist-get data :expected))))
    (concat (format "%s: %s" method message)
            ;; duet-rpc's own message contains this already.
            (and (stringp expected) (not (string-search expected message))
                 (format "; %s: expected %s, received %s" (plist-get data :param)
                         expected (plist-get data :received))))))

(defun duet-rpc--dispatch-notification (server method params)
  "Handle the notification METHOD with PARAMS from SERVER."
  (if (eq method '$/progress)
      (when-let ((call (gethash (plist-get params :token)
                                (duet-rpc--server-pending server))))
        (duet-rpc--set-deadline call)
        (when (duet-rpc--call-progress-fn call)
          (duet-rpc--run-callback call
                                  (lambda (value)
                                    ;; Not after a synchronous call has returned.
                                    (unless (and (duet-rpc--call-outcome call)
                                                 (not (duet-rpc--call-success-fn call)))
                                      (funcall (duet-rpc--call-progress-fn call) value)))
                                  (plist-get params :value))))
    (when (eq method 'gateway/stateChanged)
      (duet-rpc--refresh-backends-soon server))
    (when-let ((function (duet-rpc--handler-for server method)))
      (duet-rpc--run-soon
       (lambda ()
         (condition-case-unless-debug err
             (duet-rpc--call-handler server function params)
           (error (duet-rpc--report-handler-error method err))))))))

(defun duet-rpc--handler-for (server method)
  "Return the function that is to handle METHOD from SERVER, or nil."
  (and (duet-rpc--server-role server)
       (gethash (symbol-name method) duet-rpc--handlers)))

(defun duet-rpc--call-handler (server function params)
  "Call FUNCTION with PARAMS, in a buffer on SERVER's host."
  (with-temp-buffer
    (setq default-directory (concat (duet-rpc--server-host server) "/"))
    (with-local-quit (funcall function params))))

(defun duet-rpc--report-handler-error (method err)
  "Show a message about ERR, signaled by the handler of METHOD."
  (message "duet-rpc: handler of %s failed: %s"
           method (error-message-string err)))

(defun duet-rpc--dispatch-request (server method params)
  "Handle the request METHOD with PARAMS from SERVER.
Return a `duet-rpc--incoming-request', to be replied to later: this may be
a process filter, in which a handler could not prompt the user."
  (if-let ((function (duet-rpc--handler-for server method)))
      (duet-rpc--make-incoming-request :server server :method method :params params
                                       :function function)
    (jsonrpc-error :code -32601
                   :message (format "Method not found: %s" method))))

(defun duet-rpc--reply (connection id request)
  "Handle REQUEST, whose id is ID, and reply over CONNECTION in any case."
  (let* ((method (duet-rpc--incoming-request-method request))
         (function (duet-rpc--incoming-request-function request))
         (refuse (lambda (code text) `(:error (:code ,code :message ,text))))
         ;; The reply if the user quits.
         (reply (funcall refuse -32800 "Request cancelled")))
    (condition-case err
        (duet-rpc--call-handler (duet-rpc--incoming-request-server request)
                                (lambda (params)
                                  (setq reply (list :result (funcall function params))))
                                (duet-rpc--incoming-request-params request))
      (jsonrpc-error
       (setq reply (funcall refuse (or (alist-get 'jsonrpc-error-code (cddr err)) -32603)
                            (or (alist-get 'jsonrpc-error-message (cddr err))
                                (format "%s" (cadr err))))))
      (error
       (duet-rpc--report-handler-error method err)
       (setq reply (funcall refuse -32603 (error-message-string err)))))
    (condition-case err
        (apply #'jsonrpc-connection-send connection :id id reply)
      ;; The handler's value is not valid JSON, or the gateway has exited.
      (error
       (duet-rpc--report-handler-error method err)
       (ignore-errors
         (apply #'jsonrpc-connection-send connection :id id
                (funcall refuse -32603 (error-message-string err))))))))


;;; Descriptions of methods

;; A description is an OpenRPC method object as a plist: `:name',
;; `:summary', `:description', `:params' (a vector), `:result', `:x-source';
;; and `:role', which is `gateway' if it is called through the gateway.

(defun duet-rpc--methods ()
  "Return the descriptions of all methods, of the daemon and the gateway."
  (let ((own (duet-rpc--daemon-methods))
        (name (lambda (each) (plist-get each :name))))
    (append own (cl-set-difference (duet-rpc--gateway-methods) own
                                   :test #'equal :key name))))

(defun duet-rpc--gateway-methods ()
  "Return the descriptions of the gateway's methods and tools.
Return nil if the gateway is not running."
  (let ((server (duet-rpc--server 'gateway)))
    (when (duet-rpc--running-p server)
      (condition-case err
          (mapcar (lambda (method) `(:role gateway ,@method))
                  (plist-get (duet-rpc--request server "rpc.discover" nil) :methods))
        ;; The daemon's methods are useful without them.
        (duet-rpc-error
         (message "duet-rpc: cannot list the tools behind the gateway: %s" (cadr err))
         nil)))))

(defun duet-rpc--role-for-method (method)
  "Return `gateway' if METHOD begins with the name of a backend.
Use this for methods without a description."
  (let ((server (duet-rpc--server 'gateway)))
    (when (and (duet-rpc--running-p server)
               (string-match "\\`\\(.+?\\)\\(?:/\\|__\\)." method))
      (let ((name (match-string 1 method)))
        (and (cl-find name (plist-get (duet-rpc--request server "gateway/status" nil)
                                      :backends)
                      :test #'equal :key (lambda (each) (plist-get each :name)))
             'gateway)))))

(defun duet-rpc--daemon-methods ()
  "Return the descriptions of the daemon's methods.
Return nil if the server does not describe its methods."
  (or (append (plist-get (duet-rpc--request-or-nil "rpc.discover") :methods) nil)
      (let ((summaries (append (duet-rpc--request-or-nil "listMethods") nil)))
        (mapcar (lambda (method)
                  (list :name (plist-get method :name)
                        :summary (plist-get
                                  (cl-find (plist-get method :name) summaries
                                           :test #'equal
                                           :key (lambda (each) (plist-get each :name)))
                                  :description)
                        :params (vconcat (mapcar #'duet-rpc--parse-signature
                                                 (plist-get method :params)))
                        :result (list :schema (list :type (plist-get method :returns)))))
                (duet-rpc--request-or-nil "describeMethods")))))

(defun duet-rpc--request-or-nil (method)
  "Return the result of METHOD, or nil if the server replies with an error."
  (condition-case err
      (duet-rpc-request method)
    (duet-rpc-error
     (unless (and (duet-rpc-error-code err) (< (duet-rpc-error-code err) -1))
       (signal (car err) (cdr err))))))

(defun duet-rpc--parse-signature (text)
  "Parse TEXT, such as \"level: string\", into a parameter's description."
  (string-match "\\`\\([^:=]*\\)\\(?::\\([^=]*\\)\\)?\\(=\\)?" text)
  (list :name (string-trim (match-string 1 text))
        :required (if (match-string 3 text) :json-false t)
        :schema (list :type (string-trim (or (match-string 2 text) "any")))))

(defun duet-rpc--find-description (name)
  "Return the description of the method NAME, or nil."
  (cl-find name (duet-rpc--methods)
           :test #'equal :key (lambda (each) (plist-get each :name))))

(defun duet-rpc--signature (description)
  "Return the names of the parameters in DESCRIPTION, as one string."
  (mapconcat (lambda (param)
               (format (if (duet-rpc--required-p param) "%s" "[%s]")
                       (plist-get param :name)))
             (plist-get description :params) " "))

(defun duet-rpc--description-text (description)
  "Return the documentation in DESCRIPTION, summary first."
  (let ((summary (or (plist-get description :summary) ""))
        (text (or (plist-get description :description) "")))
    (if (string-prefix-p summary text)
        text
      (string-trim (concat summary "\n\n" text)))))

(defun duet-rpc--required-p (param)
  "Return non-nil if PARAM is required."
  (eq t (plist-get param :required)))

(defun duet-rpc--alternatives (schema)
  "Return the list of alternative schemas in SCHEMA."
  (let ((type (plist-get schema :type))
        (any (or (plist-get schema :anyOf) (plist-get schema :oneOf))))
    (cond
     (any (append any nil))
     ((vectorp type) (mapcar (lambda (each) `(:type ,each ,@schema)) type))
     (t (list schema)))))

(defun duet-rpc--type-name (schema)
  "Return the name of the type in SCHEMA, for display."
  (mapconcat
   (lambda (schema)
     (let ((type (plist-get schema :type))
           (items (plist-get schema :items)))
       (cond
        ((plist-get schema :enum)
         (mapconcat #'duet-rpc--format-value (plist-get schema :enum) "|"))
        ((and (equal type "array") (plist-get items :type))
         (format "array of %s" (duet-rpc--type-name items)))
        ((and (equal type "string") (plist-get schema :format)))
        ((stringp type) type)
        (t "any"))))
   (duet-rpc--alternatives schema) " or "))


;;; Reading methods and parameters

(defun duet-rpc--read-method (prompt methods &optional initial)
  "Read the name of one of METHODS with PROMPT; return its description.
The parameters in it are `unknown' if METHODS has no such name.  INITIAL
is the initial input."
  (let* ((names (mapcar (lambda (each) (plist-get each :name)) methods))
         (width (+ 2 (apply #'max 0 (mapcar #'length names))))
         (find (lambda (name)
                 (cl-find name methods :test #'equal
                          :key (lambda (each) (plist-get each :name)))))
         (annotate
          (lambda (name)
            (when-let ((method (funcall find name)))
              (let ((signature (duet-rpc--signature method)))
                (concat (propertize " " 'display `(space :align-to ,width))
                        (plist-get method :summary)
                        (unless (equal signature "") (format " (%s)" signature)))))))
         (name
          (completing-read
           prompt
           (lambda (string predicate action)
             (if (eq action 'metadata)
                 `(metadata (category . duet-rpc-method)
                            (annotation-function . ,annotate))
               (complete-with-action action names string predicate)))
           nil (and methods 'confirm) initial 'duet-rpc-method-history)))
    (when (equal name "")
      (user-error "No method given"))
    (or (funcall find name)
        (list :name name :params 'unknown :role (duet-rpc--role-for-method name)))))

(defun duet-rpc--read-params (description)
  "Read the parameters in DESCRIPTION; return them as a plist or a vector."
  (let ((params (plist-get description :params))
        (offered nil)
        (plist nil))
    (if (eq params 'unknown)
        (duet-rpc--read-validated
         (format "Parameters of %s (JSON object or array): "
                 (plist-get description :name))
         nil
         (lambda (text)
           (let ((value (duet-rpc--parse-json text)))
             (cond
              ((vectorp value) value)
              ((hash-table-p value)
               (cl-loop for name being the hash-keys of value using (hash-values each)
                        append (list (duet-rpc--keyword name) each)))
              (t (error "Not a JSON object or array"))))))
      (mapc (lambda (param)
              (let* ((type (duet-rpc--type-name (plist-get param :schema)))
                     (text-p (equal type "string"))
                     (value (duet-rpc--read-param
                             param (and text-p (not offered)
                                        (not (derived-mode-p 'tabulated-list-mode))))))
                (when text-p (setq offered t))
                (unless (eq value 'omit)
                  (setq plist `(,@plist ,(duet-rpc--keyword (plist-get param :name))
                                        ,value)))))
            params)
      plist)))

(defun duet-rpc--keyword (name)
  "Return NAME as a keyword."
  (intern (concat ":" name)))

(defun duet-rpc--read-param (param &optional offer)
  "Read the value of PARAM; return `omit' if it is to be omitted.
If OFFER is non-nil, offer the region and the buffer as the value."
  (let* ((schema (plist-get param :schema))
         (null-p (lambda (each) (equal (plist-get each :type) "null")))
         (all (duet-rpc--alternatives schema))
         (kinds (cl-remove-if null-p all))
         (kind (and (= 1 (length kinds)) (car kinds)))
         (type (plist-get kind :type))
         (default (plist-get schema :default))
         ;; The value of empty input.
         (empty (cond ((not (duet-rpc--required-p param)) 'omit)
                      ((cl-some null-p all) nil)
                      (t 'again)))
         (prompt (concat (plist-get param :name) " (" (duet-rpc--type-name schema)
                         (cond ((eq empty 'again) "")
                               ((not empty) ", empty for null")
                               (default
                                (format ", default %s" (duet-rpc--format-value default)))
                               (t ", optional"))))
         (prompt-end (concat prompt "): ")))
    (cond
     ((plist-get kind :enum)
      (duet-rpc--read-choice prompt-end (plist-get kind :enum) empty))
     ((and (equal type "boolean") (eq empty 'again))
      (if (y-or-n-p (concat (plist-get param :name) "? ")) t :json-false))
     ((equal type "boolean")
      (duet-rpc--read-choice prompt-end [t :json-false] empty))
     ((member type '("integer" "number"))
      (duet-rpc--read-validated
       prompt-end empty
       (lambda (text)
         (duet-rpc--check-number (ignore-errors (duet-rpc--parse-json text)) kind))))
     ((equal type "string") (duet-rpc--read-text prompt empty offer))
     ((or (not kind) (not type))
      ;; If strings are among the possible types, they need no quotes.
      (duet-rpc--read-validated
       prompt-end empty
       (lambda (text)
         (condition-case err
             (duet-rpc--parse-json text)
           (error (if (cl-some (lambda (each)
                                 (member (plist-get each :type) '("string" nil)))
                               kinds)
                      text
                    (signal (car err) (cdr err))))))))
     (t (duet-rpc--read-validated (concat prompt ", as JSON): ") empty
                                  #'duet-rpc--parse-json)))))

(defun duet-rpc--read-choice (prompt choices empty)
  "Read one of CHOICES with PROMPT and return it.
EMPTY is the value of empty input, or `again' to prompt again."
  (let* ((alist (mapcar (lambda (each) (cons (duet-rpc--format-value each) each))
                        choices))
         (empty (if (and (eq empty 'again) (assoc "" alist)) "" empty))
         (name ""))
    (while (and (equal name "")
                (equal "" (setq name (completing-read prompt alist nil t nil
                                                      'duet-rpc-value-history)))
                (eq empty 'again)))
    (if (equal name "") empty (cdr (assoc name alist)))))

(defun duet-rpc--read-validated (prompt empty parse)
  "Read text with PROMPT until PARSE accepts it; return PARSE's value.
PARSE is called with the text and signals an error if it is invalid.
EMPTY is the value of empty input, or `again' to prompt again."
  (let ((text nil) (value nil) (problem ""))
    (while problem
      (setq text (read-string (concat problem prompt) text 'duet-rpc-value-history))
      (if (and (equal text "") (not (eq empty 'again)))
          (setq value empty
                problem nil)
        (condition-case err
            (setq value (funcall parse text)
                  problem nil)
          (error (setq problem (format "[%s] " (error-message-string err)))))))
    value))

(defun duet-rpc--parse-json (text)
  "Parse TEXT as JSON and return its value.
Objects become hash tables: as a plist, {} would be sent as null."
  (condition-case nil
      (json-parse-string text :null-object nil :false-object :json-false)
    (error (error "Not JSON"))))

(defun duet-rpc--check-number (value schema)
  "Return VALUE if it is a number valid in SCHEMA; else signal an error."
  (let ((minimum (plist-get schema :minimum))
        (maximum (plist-get schema :maximum)))
    (cond
     ((not (numberp value)) (error "Not a number"))
     ((and (equal (plist-get schema :type) "integer") (not (integerp value)))
      (error "Not an integer"))
     ((and minimum (< value minimum)) (error "Less than %s" minimum))
     ((and maximum (> value maximum)) (error "Greater than %s" maximum))
     (t value))))

(defun duet-rpc--read-text (prompt empty offer)
  "Read a text with PROMPT and return it.
EMPTY is the value of empty input, or `again' if that is an empty string.
If OFFER is non-nil, offer the region and the buffer as the text."
  (let* ((buffer (current-buffer))
         (region (and offer (use-region-p)
                      (buffer-substring-no-properties (region-beginning) (region-end))))
         (map (make-sparse-keymap))
         (whole nil))
    (set-keymap-parent map minibuffer-local-map)
    (when offer
      (define-key map (kbd "C-c C-b")
                  (lambda ()
                    (interactive)
                    (setq whole (with-current-buffer buffer
                                  (buffer-substring-no-properties
                                   (point-min) (point-max))))
                    (exit-minibuffer))))
    (let ((text (read-from-minibuffer
                 (concat prompt
                         (and region "; RET for the region")
                         (and offer "; C-c C-b for the buffer")
                         "): ")
                 nil map nil 'duet-rpc-value-history)))
      (cond (whole)
            ((not (equal text "")) text)
            (region)
            ((eq empty 'again) "")
            (t empty)))))


;;; Calling interactively

(defvar duet-rpc-method-history nil
  "History of method names read in the minibuffer.")

(defvar duet-rpc-value-history nil
  "History of parameter values read in the minibuffer.")

(defvar duet-rpc--last-call nil
  "Arguments of the last `duet-rpc-call'.")

;;;###autoload
(defun duet-rpc-call (method params &optional how role)
  "Call METHOD with PARAMS and show the result in a buffer.
Interactively, prompt for the method and for each of its parameters.
With a prefix argument, insert the result at point, or replace the region
with it if that is active.  If the gateway is running, its methods and
the tools behind it are offered as well.

From Lisp, HOW is nil, `insert', `replace', `message' or a function to
call with the result.  If ROLE is `gateway', call METHOD through the
gateway; the result of a tool is then its text, or else its structured
content."
  (interactive
   (duet-rpc--with-user-errors
     (when current-prefix-arg (barf-if-buffer-read-only))
     (let* ((description (duet-rpc--read-method "Call: " (duet-rpc--methods)))
            (params (duet-rpc--read-params description)))
       (list (plist-get description :name) params
             (and current-prefix-arg (if (use-region-p) 'replace 'insert))
             (plist-get description :role)))))
  (setq duet-rpc--last-call (list method params how role))
  (when (and (eq how 'replace) (not (use-region-p)))
    (user-error "No active region; select the text to replace first"))
  (duet-rpc--with-user-errors
    (duet-rpc--call-and-deliver
     method params how
     (and (eq how 'replace) (cons (region-beginning) (region-end)))
     role)))

;;;###autoload
(defun duet-rpc-call-again ()
  "Repeat the last `duet-rpc-call' with the same parameters."
  (interactive)
  (unless duet-rpc--last-call
    (user-error "No call to repeat; M-x duet-rpc-call makes one"))
  (apply #'duet-rpc-call duet-rpc--last-call))

(defun duet-rpc--call-and-deliver (method params how bounds role)
  "Call METHOD of the server with ROLE with PARAMS; deliver the result.
HOW is as in `duet-rpc-call'.  BOUNDS is the part of the buffer to
replace, as (BEGIN . END)."
  (when (memq how '(insert replace))
    (barf-if-buffer-read-only))
  ;; The buffer may be changed or killed before the result arrives.
  (let* ((begin (copy-marker (or (car bounds) (point)) t))
         (end (copy-marker (or (cdr bounds) (point))))
         (tool (and role (duet-rpc--tool-p method)))
         (answer (duet-rpc--request-with-progress method params role))
         (result (if tool (duet-rpc--tool-result method answer) answer)))
    (pcase how
      ('message (message "%s" (duet-rpc--truncate (duet-rpc--format-value result))))
      ((or 'insert 'replace)
       (unless (marker-buffer begin)
         (user-error "The buffer for the result of %s has been killed" method))
       (with-current-buffer (marker-buffer begin)
         (when bounds
           (delete-region begin (max begin end)))
         (goto-char begin)
         (insert (duet-rpc--format-value result t))
         (set-marker begin nil)
         (set-marker end nil)))
      ((or 'nil 'buffer)
       (duet-rpc--show-result result method (and tool (stringp result))))
      (_ (funcall how result)))))

(defun duet-rpc--request-with-progress (method params role)
  "Call METHOD of the server with ROLE with PARAMS and return the result.
Show progress in the echo area."
  (let* ((server (duet-rpc--ensure-server role))
         (reporter nil)
         (report
          (lambda (value)
            (let ((total (plist-get value :total)))
              (setq total (and (numberp total) (> total 0) total))
              (unless reporter
                (setq reporter (make-progress-reporter (format "%s..." method)
                                                       (and total 0) total)))
              (progress-reporter-update reporter (and total (plist-get value :done))
                                        (plist-get value :message))))))
    (prog1 (duet-rpc--request
            server method params
            ;; Another server might mistake the token for a parameter.
            :progress-fn (and (if role
                                  (duet-rpc--tool-p method)
                                (or (eq (duet-rpc--server-state server) 'starting)
                                    (duet-rpc--duet-rpc-server-p server)))
                              report))
      (when reporter (progress-reporter-done reporter)))))

(defun duet-rpc--format-value (value &optional pretty)
  "Return VALUE as text: a string unchanged, anything else as JSON.
If PRETTY is non-nil, format the JSON with line breaks."
  (if (stringp value) value (duet-rpc--encode-json value pretty)))

(defun duet-rpc--truncate (text)
  "Return TEXT, cut to 2000 characters for the echo area."
  (if (<= (length text) 2000)
      text
    (format "%s... (2000 of %d characters; M-x duet-rpc-call shows all)"
            (substring text 0 2000) (length text))))

(defconst duet-rpc--large-result 500000
  "Results of more characters get no major mode and no line breaks.")

(defun duet-rpc--encode-json (value pretty)
  "Return VALUE as JSON.
If PRETTY is non-nil and the JSON is not too large, add line breaks."
  ;; `json-serialize' is fast, but refuses large integers, among others,
  ;; and writes 0.1 as 0.10000000000000001; json.el does neither.
  (let ((fast (ignore-errors
                (let ((json (json-serialize value :null-object nil
                                            :false-object :json-false)))
                  (if (multibyte-string-p json)
                      json
                    (decode-coding-string json 'utf-8)))))
        (json-encoding-pretty-print pretty)
        (json-null nil)
        (json-false :json-false))
    (if (> (length fast) duet-rpc--large-result)
        fast
      (condition-case nil
          (json-encode value)
        ;; VALUE is nested deeply.  In Emacs 30 `json-serialize' refuses
        ;; that as well.
        (error (or fast
                   (let ((json-encoding-pretty-print nil)
                         (max-lisp-eval-depth 60000))
                     (json-encode value))))))))

(defun duet-rpc--tool-p (method)
  "Return non-nil if METHOD of the gateway is a tool, or tools/call."
  (string-match-p "\\`[^/]+?__\\|\\(\\`\\|/\\)tools/call\\'" (format "%s" method)))

(defun duet-rpc--tool-result (method result)
  "Return the content of RESULT, which the tool METHOD returned.
That is a string, or its structured content as Lisp.  Signal
`duet-rpc-error' if the tool failed."
  (let* ((content (and (listp result) (plist-get result :content)))
         (text (and (vectorp content)
                    (mapconcat #'duet-rpc--content-text content "\n")))
         (structured (and (listp result) (plist-get result :structuredContent))))
    (cond
     ((not (or text structured)) result)
     ((eq t (plist-get result :isError))
      (signal 'duet-rpc-error
              (list (format "%s: %s" method (if (member text '(nil "")) "failed" text)))))
     ;; Most servers send structured content as text, too.
     ((and structured
           (or (member text '(nil ""))
               (let ((value (ignore-errors (json-parse-string text))))
                 (or (hash-table-p value) (vectorp value)))))
      structured)
     (t text))))

(defun duet-rpc--content-text (content)
  "Return CONTENT, one item of a tool's result, as text."
  (let ((type (plist-get content :type))
        (resource (plist-get content :resource)))
    (format "%s"
            (cond
             ((equal type "text") (plist-get content :text))
             ((equal type "resource")
              (or (plist-get resource :text) (plist-get resource :uri)))
             ((equal type "resource_link") (plist-get content :uri))
             ;; Images and audio are encoded in base64.
             (t (format "[%s, %s, %d bytes]" type (plist-get content :mimeType)
                        (/ (* 3 (length (plist-get content :data))) 4)))))))

(defun duet-rpc--show-result (result method &optional plain)
  "Show RESULT, which METHOD returned, in a buffer.
If PLAIN is non-nil, RESULT is a string to show as it is."
  (let ((directory default-directory))
    (with-current-buffer (get-buffer-create "*duet-rpc result*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (if plain result (duet-rpc--encode-json result t)) "\n"))
      (goto-char (point-min))
      (cond
       ((> (buffer-size) duet-rpc--large-result)
        ;; It may be a single line, which Emacs displays slowly.
        (fundamental-mode)
        (setq-local bidi-inhibit-bpa t
                    bidi-paragraph-direction 'left-to-right))
       (plain (text-mode))
       ((derived-mode-p 'js-mode 'js-json-mode 'js-base-mode))
       ((fboundp 'js-json-mode) (js-json-mode))
       (t (js-mode)))
      (view-mode 1)
      (setq default-directory directory
            truncate-lines (> (buffer-size) duet-rpc--large-result)
            header-line-format (format " Result of %s" method))
      (set-buffer-modified-p nil)
      (display-buffer (current-buffer)))))


;;; Commands and functions for methods

;;;###autoload
(defmacro duet-rpc-define-command (name method &rest args)
  "Define a command NAME to call METHOD, a string.
ARGS may begin with a docstring.  The rest are keyword arguments, which
are not evaluated:

:params is a plist of the parameters to send.  The values `region',
`buffer' and `symbol' (the one at point) stand for that text, and `prompt'
means to read the value in the minibuffer; any other value is sent as it
is.

:result says what to do with the result: `message' (the default),
`insert', `replace' (the text that was sent), `buffer', or a function to
call with it, given by its name or as a lambda expression.

:gateway t means to call METHOD through the gateway.

    (duet-rpc-define-command my-upcase \"upcase\"
      :params (:text region) :result replace)"
  (declare (indent 2) (doc-string 3) (debug (symbolp stringp &rest sexp)))
  (let* ((doc (if (stringp (car args))
                  (pop args)
                (format "Call the method `%s' of duet-rpc." method)))
         (params (plist-get args :params))
         (result (or (plist-get args :result) 'message)))
    (cl-loop for (key) on args by #'cddr
             unless (memq key '(:params :result :gateway))
             do (error "%s: unknown keyword %S" name key))
    (unless (and (proper-list-p params) (cl-evenp (length params))
                 (cl-loop for (key) on params by #'cddr always (keywordp key)))
      (error "%s: :params must be an unquoted plist, such as (:text region)" name))
    (unless (if (consp result)
                (not (eq (car result) 'quote))
              (and (symbolp result) (not (keywordp result))))
      (error "%s: :result must be message, insert, replace, buffer or a function, \
unquoted" name))
    (when (and (eq result 'replace)
               (not (cl-intersection '(region buffer symbol) params)))
      (error "%s: :result replace needs region, buffer or symbol in :params" name))
    `(defun ,name ()
       ,doc
       (interactive)
       (duet-rpc--run-command
        ,method ',params
        ,(if (symbolp result) `',result result)
        ',(and (plist-get args :gateway) 'gateway)))))

(defun duet-rpc--run-command (method params how role)
  "Call METHOD for a command that `duet-rpc-define-command' has defined.
PARAMS and HOW are its :params and :result; ROLE is that of the server."
  (unless (or (memq how '(message insert replace buffer)) (functionp how))
    (user-error "Cannot handle the result of %s: %s is not a function; \
see C-h f duet-rpc-define-command" method how))
  (duet-rpc--with-user-errors
    (when role (duet-rpc--ensure-server role)) ; to have descriptions of its tools
    (let* ((bounds nil)
           (sent
            (cl-loop
             for (key source) on params by #'cddr
             for found = (pcase source
                           ('region
                            (if (use-region-p)
                                (cons (region-beginning) (region-end))
                              (user-error "No active region; select some text first")))
                           ('buffer (cons (point-min) (point-max)))
                           ('symbol
                            (or (bounds-of-thing-at-point 'symbol)
                                (user-error "No symbol at point"))))
             for value = (cond
                          (found
                           (setq bounds found)
                           (buffer-substring-no-properties (car found) (cdr found)))
                          ((eq source 'prompt) (duet-rpc--read-param-named method key))
                          (t source))
             unless (eq value 'omit) append (list key value))))
      (duet-rpc--call-and-deliver method sent how (and (eq how 'replace) bounds) role))))

(defun duet-rpc--read-param-named (method key)
  "Read the value of the parameter KEY, a keyword, of METHOD."
  (let ((name (substring (symbol-name key) 1)))
    (duet-rpc--read-param
     (or (cl-find name (plist-get (duet-rpc--find-description method) :params)
                  :test #'equal :key (lambda (each) (plist-get each :name)))
         (list :name name :required t :schema '(:type "string"))))))

;;;###autoload
(defun duet-rpc-generate-wrappers (file prefix &optional confirm)
  "Write to FILE a Lisp function for each method that the server describes.
If the gateway is running, include the tools behind it.  The names of the
functions begin with PREFIX.  Load the file with `require'.

If CONFIRM is non-nil, as it is interactively, ask for confirmation before
overwriting an existing file."
  (interactive
   (list (read-file-name (format-prompt "Write functions to" "duet-methods.el")
                         nil (expand-file-name "duet-methods.el"))
         (read-string "Prefix of function names: " "duet")
         t))
  (duet-rpc--with-user-errors
    (let ((methods (or (duet-rpc--methods)
                       (user-error "The server does not describe its methods")))
          (feature (file-name-base file))
          (names nil))
      (with-temp-buffer
        (insert (format ";;; %s.el --- Methods of duet-rpc as functions  \
-*- lexical-binding: t; -*-\n\n" feature)
                ";;; Commentary:\n\n"
                ";; Generated by M-x duet-rpc-generate-wrappers.  Do not edit.\n\n"
                ";;; Code:\n\n(require 'duet-rpc)\n")
        (dolist (method methods)
          (let ((name (concat prefix "-" (duet-rpc--lisp-name (plist-get method :name)))))
            (while (member name names)
              (setq name (concat name "-2")))
            (push name names)
            (insert "\n" (duet-rpc--wrapper name method))))
        (insert (format "\n(provide '%s)\n;;; %s.el ends here\n" feature feature))
        (let ((coding-system-for-write 'utf-8-unix))
          (write-region nil nil file nil nil nil confirm)))
      (message "Wrote %d functions to %s" (length names) file))))

(defun duet-rpc--lisp-name (name)
  "Return NAME, such as text.wordCount, in Lisp style: text-word-count."
  (let ((case-fold-search nil))
    (downcase
     (string-trim
      (replace-regexp-in-string
       "[^[:alnum:]]+" "-"
       (replace-regexp-in-string "\\([[:lower:][:digit:]]\\)\\([[:upper:]]\\)"
                                 "\\1-\\2" name))
      "-" "-"))))

(defun duet-rpc--wrapper (name description)
  "Return the source of a Lisp function NAME for the method in DESCRIPTION."
  (let* ((params (append (plist-get description :params) nil))
         (params (append (cl-remove-if-not #'duet-rpc--required-p params)
                         (cl-remove-if #'duet-rpc--required-p params)))
         (names (duet-rpc--argument-names params))
         (argument (lambda (param) (cdr (assq param names))))
         (optional nil)
         (arguments
          (mapconcat (lambda (param)
                       (concat (unless (or optional (duet-rpc--required-p param))
                                 (setq optional t)
                                 "&optional ")
                               (funcall argument param)))
                     params " "))
         (pair (lambda (param)
                 (format "(list %S %s)" (duet-rpc--keyword (plist-get param :name))
                         (funcall argument param))))
         (pairs (mapcar (lambda (param)
                          (if (duet-rpc--required-p param)
                              (funcall pair param)
                            (format "(and %s %s)" (funcall argument param)
                                    (funcall pair param))))
                        params)))
    (format "(defun %s (%s)\n  %s\n  (%s\n   %S%s))\n"
            name arguments
            (duet-rpc--wrapper-doc description argument)
            (if (plist-get description :role) 'duet-rpc-gateway-request 'duet-rpc-request)
            (plist-get description :name)
            (if pairs
                (format "\n   (append %s)" (string-join pairs "\n           "))
              ""))))

(defun duet-rpc--argument-names (params)
  "Return an alist that maps each of PARAMS to the name of a Lisp argument."
  (let (names)
    (dolist (param params (nreverse names))
      (let ((name (duet-rpc--lisp-name (plist-get param :name))))
        ;; An argument must not shadow a variable, such as `fill-column'.
        (when (or (equal name "") (special-variable-p (intern name)))
          (setq name (concat "the-" name)))
        (while (rassoc name names)
          (setq name (concat name "-2")))
        (push (cons param name) names)))))

(defun duet-rpc--wrapper-doc (description argument)
  "Return a docstring, as Lisp source, for the method in DESCRIPTION.
ARGUMENT is a function that maps a parameter to its argument's name."
  (with-temp-buffer
    (let ((fill-column 70))
      (dolist (text
               `(,(or (plist-get description :summary)
                      (format "Call %s." (plist-get description :name)))
                 ,(string-remove-prefix (or (plist-get description :summary) "")
                                        (duet-rpc--description-text description))
                 ,@(mapcar (lambda (param)
                             (format "%s: %s%s"
                                     (upcase (funcall argument param))
                                     (duet-rpc--type-name (plist-get param :schema))
                                     (if-let ((what (plist-get (plist-get param :schema)
                                                               :description)))
                                         (concat ", " what)
                                       "")))
                           (plist-get description :params))
                 ,(format "Return: %s" (duet-rpc--type-name
                                        (plist-get (plist-get description :result)
                                                   :schema)))))
        (unless (string-blank-p text)
          (let ((begin (point)))
            (insert (string-trim text) "\n")
            (fill-region begin (point))))))
    (goto-char (point-min))
    ;; Nothing in it is a key binding or a quoted symbol.
    (while (re-search-forward "[\\`']" nil t)
      (replace-match "\\\\=\\&"))
    (let ((print-escape-newlines nil))
      (prin1-to-string (string-trim (buffer-string))))))


;;; Lists, help and the log

(defvar duet-rpc-methods-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'duet-rpc-methods-call)
    (define-key map "d" #'duet-rpc-methods-describe)
    (define-key map "s" #'duet-rpc-methods-find-source)
    map)
  "Keymap of `duet-rpc-methods-mode'.")

(define-derived-mode duet-rpc-methods-mode tabulated-list-mode "duet-rpc"
  "Major mode for the list of methods.

\\{duet-rpc-methods-mode-map}"
  (setq tabulated-list-format [("Method" 24 t) ("Parameters" 24 t) ("Description" 0 t)])
  (tabulated-list-init-header)
  (add-hook 'tabulated-list-revert-hook #'duet-rpc--refresh-methods nil t))

(defun duet-rpc--refresh-methods ()
  "Update the entries of the list of methods."
  (setq tabulated-list-entries
        (mapcar (lambda (method)
                  (list method (vector (plist-get method :name)
                                       (duet-rpc--signature method)
                                       (or (plist-get method :summary) ""))))
                (duet-rpc--with-user-errors (duet-rpc--methods)))))

;;;###autoload
(defun duet-rpc-list-methods ()
  "List the methods on this buffer's host.
If the gateway is running, include its methods and the tools behind it.
In the list, \\<duet-rpc-methods-mode-map>\\[duet-rpc-methods-call] calls \
a method, \\[duet-rpc-methods-describe] describes it and
\\[duet-rpc-methods-find-source] visits its Python source."
  (interactive)
  (let ((directory default-directory)
        (buffer (get-buffer-create "*duet-rpc methods*")))
    (with-current-buffer buffer
      (duet-rpc-methods-mode)
      (setq default-directory directory)
      (duet-rpc--refresh-methods)
      (tabulated-list-print))
    (pop-to-buffer buffer)))

(defun duet-rpc--method-at-point ()
  "Return the description of the method on this line."
  (or (tabulated-list-get-id) (user-error "No method on this line")))

(defun duet-rpc-methods-call ()
  "Call the method on this line."
  (interactive nil duet-rpc-methods-mode)
  (let ((method (duet-rpc--method-at-point)))
    (duet-rpc-call (plist-get method :name) (duet-rpc--read-params method)
                   nil (plist-get method :role))))

(defun duet-rpc-methods-describe ()
  "Describe the method on this line."
  (interactive nil duet-rpc-methods-mode)
  (duet-rpc--describe (duet-rpc--method-at-point)))

(defun duet-rpc-methods-find-source ()
  "Visit the Python source of the method on this line."
  (interactive nil duet-rpc-methods-mode)
  (duet-rpc--find-source (duet-rpc--method-at-point)))

;;;###autoload
(defun duet-rpc-describe-method (name)
  "Describe the method NAME."
  (interactive (list (duet-rpc--with-user-errors
                       (plist-get (duet-rpc--read-method "Describe: " (duet-rpc--methods))
                                  :name))))
  (duet-rpc--describe (or (duet-rpc--with-user-errors (duet-rpc--find-description name))
                          (user-error "No description of %s; M-x duet-rpc-list-methods \
lists all methods" name))))

(defun duet-rpc--describe (method)
  "Show METHOD, a description, in the help buffer."
  (let ((source (plist-get method :x-source))
        (directory default-directory))
    (help-setup-xref (list #'duet-rpc--describe method) nil)
    (with-help-window (help-buffer)
      (with-current-buffer standard-output
        (setq default-directory directory)
        (insert (propertize (plist-get method :name) 'face 'bold)
                "\n\n" (duet-rpc--description-text method) "\n\nParameters:\n")
        (mapc (lambda (param)
                (let ((schema (plist-get param :schema)))
                  (insert (format "  %s: %s%s%s\n" (plist-get param :name)
                                  (duet-rpc--type-name schema)
                                  (cond ((duet-rpc--required-p param) "")
                                        ((plist-get schema :default)
                                         (format ", default %s"
                                                 (duet-rpc--format-value
                                                  (plist-get schema :default))))
                                        (t ", optional"))
                                  (if-let ((what (plist-get schema :description)))
                                      (concat ".  " what)
                                    "")))))
              (plist-get method :params))
        (when (= 0 (length (plist-get method :params)))
          (insert "  none\n"))
        (insert "\nResult: "
                (duet-rpc--type-name (plist-get (plist-get method :result) :schema)) "\n")
        (when source
          (insert "\nSource: ")
          (insert-text-button (format "%s:%s" (plist-get source :file)
                                      (plist-get source :line))
                              'action (lambda (_) (duet-rpc--find-source method)))
          (insert "\n"))))))

(defun duet-rpc--find-source (method)
  "Visit the Python source of METHOD, a description."
  (let* ((source (or (plist-get method :x-source)
                     (user-error "The server does not say where %s is defined"
                                 (plist-get method :name))))
         (file (concat (file-remote-p default-directory) (plist-get source :file))))
    (unless (file-readable-p file)
      (user-error "%s is defined in %s, which is not readable"
                  (plist-get method :name) file))
    (find-file-other-window file)
    (goto-char (point-min))
    (forward-line (1- (plist-get source :line)))))

;;;###autoload
(defun duet-rpc-show-log (&optional role)
  "Show the log of the daemon on this buffer's host.
With a prefix argument, or if ROLE is `gateway', show the gateway's log."
  (interactive (list (and current-prefix-arg 'gateway)))
  (pop-to-buffer (duet-rpc--log-buffer (duet-rpc--server role)))
  (goto-char (point-max)))

;;;###autoload
(defun duet-rpc-set-log-level (level &optional role)
  "Set the daemon's log level to LEVEL: debug, info, warn or error.
With a prefix argument, or if ROLE is `gateway', set the gateway's."
  (interactive (list (completing-read "Log level: " '("debug" "info" "warn" "error")
                                      nil t)
                     (and current-prefix-arg 'gateway)))
  (duet-rpc--with-user-errors
    (let ((server (duet-rpc--ensure-server role)))
      (duet-rpc--request server "setLogLevel" (list :level level))
      (message "%s: log level is now %s; %s shows the log" (duet-rpc--server-name server)
               level (duet-rpc--command-hint server 'duet-rpc-show-log)))))


;;; The list of backends

(defvar duet-rpc-backends-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'duet-rpc-backends-call)
    (define-key map "c" #'duet-rpc-backends-call)
    (define-key map "r" #'duet-rpc-backends-restart)
    (define-key map "k" #'duet-rpc-backends-stop)
    (define-key map "s" #'duet-rpc-backends-stop)
    (define-key map "l" #'duet-rpc-backends-log)
    (define-key map "L" #'duet-rpc-backends-gateway-log)
    map)
  "Keymap of `duet-rpc-backends-mode'.")

(defvar-local duet-rpc--backends nil
  "Alist of the backends in this list, (NAME . STATUS), from gateway/status.")

(defvar-local duet-rpc--refreshing nil
  "Non-nil while this list waits for gateway/status.
The value `again' means to request it once more after that.")

(define-derived-mode duet-rpc-backends-mode tabulated-list-mode "duet-rpc backends"
  "Major mode for the list of servers behind the gateway.

\\{duet-rpc-backends-mode-map}"
  (cl-flet ((by (key)
              (lambda (one other)
                (cl-flet ((value (entry)
                            (let ((status (cdr (assoc (car entry) duet-rpc--backends))))
                              (or (plist-get status key) 0))))
                  (< (value one) (value other))))))
    (setq tabulated-list-format
          `[("Backend" 14 t)
            ("State" 8 t)
            ("PID" 7 ,(by :pid) :right-align t)
            ("Pending" 7 ,(by :pending) :right-align t)
            ("Restarts" 8 ,(by :restarts) :right-align t)
            ("Up" 9 ,(by :uptime) :right-align t :pad-right 2)
            ("Protocol" 22 t)
            ("Reason" 0 t)]
          tabulated-list-padding 1
          mode-line-process
          '(:eval (format ":%s" (duet-rpc--server-state (duet-rpc--server 'gateway))))))
  (tabulated-list-init-header)
  (add-hook 'tabulated-list-revert-hook #'duet-rpc--update-backends nil t)
  (add-hook 'window-buffer-change-functions
            (lambda (window)
              (with-current-buffer (window-buffer window)
                (duet-rpc--refresh-backends-soon (duet-rpc--server 'gateway))))
            nil t))

;;;###autoload
(defun duet-rpc-backends ()
  "List the servers behind the gateway on this buffer's host.
Start the gateway if necessary.  The list is updated whenever the state of
a server changes, and by \\<duet-rpc-backends-mode-map>\\[revert-buffer].  In it,
\\[duet-rpc-backends-call] calls a tool or a method, \
\\[duet-rpc-backends-restart] restarts a server, \\[duet-rpc-backends-stop] stops it,
\\[duet-rpc-backends-log] shows the end of its stderr, and \
\\[duet-rpc-backends-gateway-log] shows the gateway's log."
  (interactive)
  (let* ((directory default-directory)
         (server (duet-rpc--server 'gateway))
         (buffer (get-buffer-create (duet-rpc--backends-name server))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'duet-rpc-backends-mode)
        (duet-rpc-backends-mode))
      (setq default-directory directory)
      (revert-buffer))
    (pop-to-buffer buffer)
    (unless duet-rpc--backends
      (message "No backends are configured; add a table [backends.NAME] with a \
command to ~/.config/duet-rpc/config.toml, then C-u M-x duet-rpc-restart"))))

(defun duet-rpc--backends-name (server)
  "Return the name of the buffer for the list of SERVER's backends."
  (format "*duet-rpc backends%s*"
          (if (equal (duet-rpc--server-host server) "")
              ""
            (concat " " (duet-rpc--server-host server)))))

(defun duet-rpc--update-backends ()
  "Request gateway/status and update the entries of this list."
  (duet-rpc--set-backends
   (duet-rpc--with-user-errors (duet-rpc-gateway-request "gateway/status"))))

(defun duet-rpc--set-backends (status)
  "Set this list's backends from STATUS, the result of gateway/status."
  (setq duet-rpc--backends
        (mapcar (lambda (each) (cons (plist-get each :name) each))
                (plist-get status :backends)))
  (duet-rpc--make-backend-entries))

(defun duet-rpc--make-backend-entries ()
  "Set the entries of this list from `duet-rpc--backends'."
  (setq tabulated-list-entries
        (mapcar
         (lambda (each)
           (let* ((status (cdr each))
                  (state (plist-get status :state))
                  (pid (plist-get status :pid)))
             (list (car each)
                   (vector (car each)
                           (propertize state 'face
                                       (pcase state
                                         ("ready" 'success)
                                         ((or "failed" "backoff" "gone") 'error)
                                         ("stopped" 'shadow)
                                         (_ 'warning)))
                           (if pid (number-to-string pid) "")
                           (number-to-string (plist-get status :pending))
                           (number-to-string (plist-get status :restarts))
                           (if pid
                               (format-seconds "%dd %hh %mm %z%ss"
                                               (plist-get status :uptime))
                             "")
                           (format "%s, %s" (plist-get status :dialect)
                                   (plist-get status :framing))
                           (or (plist-get status :reason) "")))))
         duet-rpc--backends)))

(defun duet-rpc--print-backends ()
  "Print the entries of this list, keeping point."
  ;; While it is displayed, point is the window's.
  (if-let ((window (get-buffer-window nil t)))
      (with-selected-window window (tabulated-list-print t t))
    (tabulated-list-print t t)))

(defun duet-rpc--refresh-backends-soon (server)
  "Schedule an update of the list of SERVER's backends, if it is displayed.
Send one request at a time: a change in the meantime causes another one."
  (let ((buffer (get-buffer (duet-rpc--backends-name server))))
    (when (and buffer (get-buffer-window buffer t))
      (with-current-buffer buffer
        (if duet-rpc--refreshing
            (setq duet-rpc--refreshing 'again)
          (setq duet-rpc--refreshing t)
          (duet-rpc--run-soon
           (lambda ()
             (duet-rpc--call-in-buffer
              buffer #'duet-rpc--refresh-backends-async server))))))))

(defun duet-rpc--refresh-backends-async (server)
  "Request gateway/status from SERVER and update this list on the reply."
  (let ((done (lambda (&optional status)
                (let ((again (eq duet-rpc--refreshing 'again)))
                  (setq duet-rpc--refreshing nil)
                  (when (plist-get status :backends)
                    (duet-rpc--set-backends status)
                    (duet-rpc--print-backends))
                  (when again (duet-rpc--refresh-backends-soon server))))))
    (unless (and (duet-rpc--running-p server)
                 (ignore-errors
                   (duet-rpc--async-request server "gateway/status" nil :success-fn done
                                            :error-fn done :timeout-fn done)))
      (setq duet-rpc--refreshing nil))))

(defun duet-rpc--mark-backends-gone (server)
  "Show all backends of SERVER, a gateway, as gone if it is not running.
When it is ready again, the reply to its first call updates the list."
  (when-let (((memq (duet-rpc--server-state server) '(stopped waiting failed)))
             (buffer (get-buffer (duet-rpc--backends-name server))))
    (with-current-buffer buffer
      (dolist (each duet-rpc--backends)
        (setcdr each `(:state "gone" :pid nil :pending 0 ,@(cdr each))))
      (duet-rpc--make-backend-entries)
      (duet-rpc--print-backends))))

(defun duet-rpc--backend-at-point ()
  "Return the name of the backend on this line."
  (or (tabulated-list-get-id) (user-error "No backend on this line")))

(defun duet-rpc-backends-call ()
  "Call a tool or a method of the backend on this line."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--with-user-errors
    (let* ((name (duet-rpc--backend-at-point))
           (tools (cl-remove-if-not
                   (lambda (each)
                     (string-prefix-p (concat name "__") (plist-get each :name)))
                   (duet-rpc--gateway-methods)))
           (method (duet-rpc--read-method "Call: " tools
                                          (concat name (if tools "__" "/")))))
      (duet-rpc-call (plist-get method :name) (duet-rpc--read-params method)
                     nil 'gateway))))

(defun duet-rpc-backends-restart ()
  "Restart the backend on this line."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--request-for-backend "gateway/restart" "%s is restarting"))

(defun duet-rpc-backends-stop ()
  "Stop the backend on this line, until the next call to it."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--request-for-backend "gateway/stop"
                                 "%s stopped; the next call starts it again"))

(defun duet-rpc--request-for-backend (method done)
  "Call METHOD of the gateway for the backend on this line.
Then show the message DONE, a format string for the backend's name."
  (let ((name (duet-rpc--backend-at-point)))
    (duet-rpc--with-user-errors
      (duet-rpc-gateway-request method (list :backend name)))
    (message done name)))

(defun duet-rpc-backends-log ()
  "Show the end of stderr of the backend on this line."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--show-backend-stderr (duet-rpc--backend-at-point)))

(defun duet-rpc--show-backend-stderr (name)
  "Show the end of stderr of the backend NAME."
  (let ((lines (plist-get (duet-rpc--with-user-errors
                            (duet-rpc-gateway-request "gateway/log" (list :backend name)))
                          :lines))
        (directory default-directory))
    (pop-to-buffer (format "*duet-rpc stderr of %s*" name))
    (special-mode)
    (setq default-directory directory)
    (setq-local revert-buffer-function
                (lambda (&rest _) (duet-rpc--show-backend-stderr name)))
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert (if (= 0 (length lines))
                  (format "%s has written nothing to stderr.\n" name)
                (mapconcat (lambda (line) (concat line "\n")) lines ""))))
    (set-buffer-modified-p nil)))

(defun duet-rpc-backends-gateway-log ()
  "Show the gateway's log, which includes the stderr of all backends."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc-show-log 'gateway))


;;; The mode line and the menu

(defun duet-rpc--update-mode-line ()
  "Update the mode lines if they show the state."
  (when (bound-and-true-p duet-rpc-mode-line-mode)
    (force-mode-line-update t)))

(defun duet-rpc--mode-line ()
  "Return the state of this buffer's servers, for the mode line."
  (let* ((host (or (file-remote-p default-directory) ""))
         (daemon (duet-rpc--mode-line-state host nil))
         (gateway (duet-rpc--mode-line-state host 'gateway)))
    (when (or daemon gateway)
      `(" duet"
        ,@(and daemon (list ":" daemon))
        ;; Ready is its normal state, and needs no space.
        ,@(and gateway (if (equal gateway "ready") '("+gw") (list "+gw:" gateway)))))))

(defun duet-rpc--mode-line-state (host role)
  "Return the state of the server on HOST with ROLE, or nil if stopped."
  (when-let ((server (gethash (cons host role) duet-rpc--servers)))
    (let* ((state (duet-rpc--server-state server))
           (pending (hash-table-count (duet-rpc--server-pending server)))
           (text (if (and (eq state 'ready) (> pending 0))
                     (format "busy %d" pending)
                   (symbol-name state))))
      (unless (eq state 'stopped)
        (propertize text
                    'face (and (memq state '(failed waiting)) 'error)
                    'help-echo (or (duet-rpc--server-reason server)
                                   (format "State of the duet-rpc %s"
                                           (or role 'daemon))))))))

;;;###autoload
(define-minor-mode duet-rpc-mode-line-mode
  "Show the state of the daemon in the mode line.
It is starting, ready, busy with a number of pending calls, stopping,
waiting for a restart, or failed.  If the gateway is running, +gw follows,
with its state unless that is ready."
  :global t
  (setq mode-line-misc-info
        (remove '(:eval (duet-rpc--mode-line)) mode-line-misc-info))
  (when duet-rpc-mode-line-mode
    (push '(:eval (duet-rpc--mode-line)) mode-line-misc-info))
  (force-mode-line-update t))

;;;###autoload
(defun duet-rpc-menu ()
  "Show a menu of all commands."
  (interactive)
  (unless (require 'transient nil t)
    (user-error "The menu needs transient.el; \
M-x duet-rpc- TAB lists all commands without it"))
  (unless (fboundp 'duet-rpc--menu)
    ;; Not at the top level, because transient.el is slow to load.
    (transient-define-prefix duet-rpc--menu ()
      "All commands of duet-rpc."
      [["Call"
        ("c" "a method" duet-rpc-call)
        ("a" "again" duet-rpc-call-again)]
       ["Methods"
        ("l" "list" duet-rpc-list-methods)
        ("d" "describe" duet-rpc-describe-method)
        ("w" "generate Lisp functions" duet-rpc-generate-wrappers)]
       ["Daemon"
        ("s" "start" duet-rpc-start)
        ("r" "restart" duet-rpc-restart)
        ("k" "stop" duet-rpc-stop) ; not q, which closes a menu
        ("i" "status" duet-rpc-status)]
       ["Other servers"
        ("g" "start gateway" duet-rpc-gateway)
        ("b" "backends" duet-rpc-backends)]
       ["Diagnosis"
        ("o" "show log" duet-rpc-show-log)
        ("v" "set log level" duet-rpc-set-log-level)
        ("D" "doctor" duet-rpc-doctor)]]))
  (call-interactively 'duet-rpc--menu))


;;; The doctor

;;;###autoload
(defun duet-rpc-doctor ()
  "Show the information that a bug report needs in one buffer.
Values that take time to find out are filled in later."
  (interactive)
  (let* ((server (duet-rpc--server))
         (host (duet-rpc--server-host server))
         (directory default-directory)
         (buffer (get-buffer-create "*duet-rpc doctor*")))
    (with-current-buffer buffer
      (special-mode)
      (setq default-directory directory)
      (setq-local revert-buffer-function (lambda (&rest _) (duet-rpc-doctor)))
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert "duet-rpc doctor, " (format-time-string "%F %T") "\n\n")
        (dolist (label '("Emacs" "jsonrpc.el" "duet-rpc.el" "Program" "Python" "Host"
                         "Daemon" "Ping" "Methods" "Gateway" "Options" "Config"
                         "Last stderr"))
          (insert (format "%-12s ...\n" label)))
        (goto-char (point-min)))
      (duet-rpc--doctor-fill "Emacs" "%s on %s" emacs-version system-configuration)
      (duet-rpc--doctor-fill "jsonrpc.el" "%s, %s" (duet-rpc--jsonrpc-version)
                             (abbreviate-file-name (or (locate-library "jsonrpc") "")))
      (duet-rpc--doctor-fill "duet-rpc.el" "%s, %s" duet-rpc--version
                             (abbreviate-file-name (or duet-rpc--file "unknown")))
      (duet-rpc--doctor-fill "Host" "%s" (if (equal host "") "this machine" host))
      (duet-rpc--doctor-fill "Options" "%s" (duet-rpc--doctor-changed-options))
      (condition-case err
          (progn
            (when-let ((text (duet-rpc--invalid-option)))
              (dolist (label '("Program" "Python" "Gateway" "Config"))
                (duet-rpc--doctor-fill label "unknown"))
              (signal 'duet-rpc-error (list text)))
            (duet-rpc--doctor-check-program)
            (duet-rpc--doctor-check-gateway (duet-rpc--server 'gateway))
            ;; Connecting to another host may take long or need a password.
            (unless (or (equal host "") (duet-rpc--running-p server))
              (signal 'duet-rpc-error '("not running; call a method first")))
            (duet-rpc--ensure-server)
            (duet-rpc--doctor-check-daemon server))
        (duet-rpc-error (duet-rpc--doctor-report-failure server (cadr err)))))
    (pop-to-buffer buffer)))

(defun duet-rpc--doctor-fill (label format &rest args)
  "Write FORMAT with ARGS after LABEL in the doctor's buffer."
  (save-excursion
    (goto-char (point-min))
    (let ((inhibit-read-only t))
      (when (re-search-forward (format "^%s +\\(.*\\(?:\n  .*\\)*\\)" (regexp-quote label))
                               nil t)
        (replace-match (replace-regexp-in-string
                        "\n" (concat "\n" (make-string 13 ?\s))
                        (string-trim (apply #'format format args)))
                       t t nil 1)))))

(defun duet-rpc--jsonrpc-version ()
  "Return the version of jsonrpc.el, or \"unknown\"."
  (or (ignore-errors
        (require 'find-func)
        (with-temp-buffer
          (let ((inhibit-message t) (message-log-max nil))
            (insert-file-contents (find-library-name "jsonrpc")))
          (lm-header "version")))
      "unknown"))

(defun duet-rpc--doctor-changed-options ()
  "Return the options that differ from their defaults, one per line."
  (let (lines)
    (mapatoms
     (lambda (symbol)
       (when (and (string-prefix-p "duet-rpc-" (symbol-name symbol))
                  (custom-variable-p symbol)
                  (not (equal (symbol-value symbol)
                              (eval (car (get symbol 'standard-value)) t))))
         (push (format "%s: %S" symbol (symbol-value symbol)) lines))))
    (if lines (string-join (sort lines #'string<) "\n") "all have their default values")))

(defun duet-rpc--doctor-check-program ()
  "Fill in which program and which Python this machine would run."
  (let ((default-directory "~/"))
    (duet-rpc--doctor-fill-from-command "Python" (list duet-rpc-python "--version")
                                        (concat ", " (executable-find duet-rpc-python)))
    (condition-case err
        (let ((command (duet-rpc--command (duet-rpc--server))))
          (duet-rpc--doctor-fill "Program" "%s"
                                 (mapconcat #'abbreviate-file-name command " "))
          (if (consp duet-rpc-program)
              (duet-rpc--doctor-fill "Config" "unknown")
            (duet-rpc--doctor-fill-from-command
             "Config"
             (append (butlast command (length duet-rpc-arguments)) '("config")))))
      (duet-rpc-error
       (duet-rpc--doctor-fill "Program" "%s" (cadr err))
       (duet-rpc--doctor-fill "Config" "unknown")))))

(defun duet-rpc--doctor-fill-from-command (label command &optional suffix)
  "Write the output of COMMAND and then SUFFIX after LABEL."
  (let ((buffer (current-buffer))
        (default-directory temporary-file-directory)
        (output ""))
    (condition-case err
        (make-process
         :name "duet-rpc doctor" :command command :noquery t :connection-type 'pipe
         :filter (lambda (_ text) (setq output (concat output text)))
         :sentinel (lambda (process _)
                     (when (and (buffer-live-p buffer) (not (process-live-p process)))
                       (with-current-buffer buffer
                         (duet-rpc--doctor-fill label "%s%s" (string-trim output)
                                                (or suffix ""))))))
      (error (duet-rpc--doctor-fill label "%s" (error-message-string err))))))

(defun duet-rpc--doctor-check-daemon (server)
  "Fill in the state of SERVER, the daemon.
Send one request at a time, so that the ping measures nothing else."
  (let* ((fail (lambda (&optional err)
                 (duet-rpc--doctor-report-failure
                  server (or (plist-get err :message) "no answer"))))
         (ask (lambda (method then)
                (duet-rpc--async-request server method nil
                                         :timeout (min 10 duet-rpc-timeout)
                                         :success-fn then :error-fn fail :timeout-fn fail)))
         (ping (lambda (_)
                 (let ((begin (float-time)))
                   (funcall ask "version"
                            (lambda (_)
                              (duet-rpc--doctor-fill "Ping" "%.1f ms"
                                                     (* 1000 (- (float-time) begin)))
                              (duet-rpc--doctor-report-stderr server)))))))
    (funcall ask "version"
             (lambda (_)
               (duet-rpc--doctor-fill
                "Daemon" "%s, version %s, protocol %s, process %s, up %d s"
                (duet-rpc--server-state server)
                (or (duet-rpc--server-version server) "unknown")
                (or (plist-get (duet-rpc--server-info server) :protocolVersion) "unknown")
                (process-id (duet-rpc--server-process server))
                (- (float-time) (duet-rpc--server-start-time server)))
               (duet-rpc--async-request
                server "listMethods" nil :timeout-fn fail
                :error-fn (lambda (err)
                            (duet-rpc--doctor-fill "Methods" "%s" (plist-get err :message))
                            (funcall ping nil))
                :success-fn (lambda (methods)
                              (duet-rpc--doctor-fill
                               "Methods" "%d: %s" (length methods)
                               (mapconcat (lambda (each) (plist-get each :name))
                                          methods " "))
                              ;; The daemon finishes loading when it is idle.
                              (run-with-timer 0.3 nil #'duet-rpc--call-in-buffer
                                              (current-buffer) ping nil)))))
    (duet-rpc--doctor-fill "Daemon" "%s, %d calls pending, waiting for an answer"
                           (duet-rpc--server-state server)
                           (hash-table-count (duet-rpc--server-pending server)))))

(defun duet-rpc--doctor-check-gateway (server)
  "Fill in the state of SERVER, the gateway, without starting it."
  (let ((fail (lambda (&optional err)
                (duet-rpc--doctor-fill "Gateway" "%s: %s" (duet-rpc--server-state server)
                                       (or (plist-get err :message) "no answer")))))
    (if (not (duet-rpc--running-p server))
        (duet-rpc--doctor-fill "Gateway" "%s: %s" (duet-rpc--server-state server)
                               (or (duet-rpc--server-reason server)
                                   "not running; M-x duet-rpc-gateway starts it"))
      (duet-rpc--async-request
       server "gateway/status" nil :timeout (min 10 duet-rpc-timeout)
       :error-fn fail :timeout-fn fail
       :success-fn
       (lambda (status)
         (duet-rpc--doctor-fill
          "Gateway" "%s, process %s, up %d s, %d backends%s"
          (duet-rpc--server-state server)
          (process-id (duet-rpc--server-process server))
          (- (float-time) (duet-rpc--server-start-time server))
          (length (plist-get status :backends))
          (mapconcat (lambda (each)
                       (string-trim-right
                        (format "\n%s: %s  %s" (plist-get each :name)
                                (plist-get each :state) (or (plist-get each :reason) ""))))
                     (plist-get status :backends) "")))))))

(defun duet-rpc--call-in-buffer (buffer function &rest args)
  "Call FUNCTION with ARGS in BUFFER, unless that has been killed."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (apply function args))))

(defun duet-rpc--doctor-report-stderr (server)
  "Fill in the end of SERVER's stderr."
  (let ((tail (duet-rpc--stderr-tail server 10)))
    (duet-rpc--doctor-fill "Last stderr" "%s" (if (equal tail "") "none" tail))))

(defun duet-rpc--doctor-report-failure (server reason)
  "Fill in that SERVER does not answer because of REASON."
  (duet-rpc--doctor-fill "Daemon" "%s: %s" (duet-rpc--server-state server) reason)
  (duet-rpc--doctor-fill "Ping" "none")
  (duet-rpc--doctor-fill "Methods" "unknown")
  (duet-rpc--doctor-report-stderr server))

(provide 'duet-rpc)
;;; duet-rpc.el ends here
