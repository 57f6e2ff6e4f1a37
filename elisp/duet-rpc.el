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

;; Call Python functions from Emacs.  Keep duet-rpc.pyz beside this file:
;;
;;   (require 'duet-rpc)
;;   (duet-rpc-request "version")       ; => (:version "0.1.0")
;;   M-x duet-rpc-call                  ; any method, with completion
;;   (duet-rpc-define-command my-count "word_count" :params (:text region))
;;   M-x duet-rpc-backends              ; other servers, behind the gateway
;;   M-x duet-rpc-doctor                ; when something is wrong
;;
;; The daemon starts on first use and ends with Emacs, and so does the
;; gateway.  From a remote buffer they run on that buffer's host.  Results
;; are plists, as in jsonrpc.el, on which all this is built.

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
  "The program to run.
If nil, it is `duet-rpc.pyz' beside this library, or else `duet-rpc'
on variable `exec-path'.  A string names a file, or a command on
variable `exec-path'.  A list of strings is a whole command, run as it
is, without `duet-rpc-arguments'."
  :type '(choice (const :tag "Look for it" nil)
                 (file :tag "File")
                 (repeat :tag "Whole command" string)))

(defcustom duet-rpc-python "python3"
  "The Python that runs `duet-rpc.pyz'."
  :type 'string)

(defcustom duet-rpc-arguments '("rpc")
  "The arguments that follow the program's name."
  :type '(repeat string))

(defcustom duet-rpc-gateway-command nil
  "The whole command that starts the gateway, as a list of strings.
If nil, it is the program that `duet-rpc-program' names, and the word
gateway."
  :type '(choice (const :tag "The program of the daemon" nil)
                 (repeat :tag "Whole command" string)))

(defcustom duet-rpc-directory nil
  "The directory that the daemon and the gateway run in.
If nil, it is your home directory."
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
  "The servers by host and role, as (HOST . ROLE).")

(cl-defstruct (duet-rpc--call (:constructor duet-rpc--make-call)
                              (:copier nil))
  "One request, from the time it is sent until it has its outcome."
  server method token id buffer timeout
  deadline                   ; when it times out, if ever
  success-fn error-fn timeout-fn progress-fn
  null-id-error              ; text of an error with id null that came meanwhile
  outcome)                   ; nil, (result R), (error E), (timeout S), (cancelled)


(defmacro duet-rpc--with-send-errors (server method &rest body)
  "Run BODY, which sends METHOD to SERVER; make its errors a `duet-rpc-error'."
  (declare (indent 2) (debug t))
  `(condition-case err
       (progn ,@body)
     (error (duet-rpc--signal-send-error ,server ,method err))))

(defmacro duet-rpc--with-user-errors (&rest body)
  "Run BODY; turn a `duet-rpc-error' into a plain message to a person."
  (declare (indent 0) (debug t))
  `(condition-case err
       (progn ,@body)
     (duet-rpc-error (user-error "%s" (cadr err)))))


;;; Calling methods

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
  (duet-rpc--request (duet-rpc--ensure-server) method params :timeout timeout))

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

Return an object that `duet-rpc-cancel' takes.  Signal `duet-rpc-error'
if the daemon cannot be started or the call not be sent."
  (duet-rpc--async-request (duet-rpc--ensure-server) method params
                           :success-fn (or success-fn #'ignore)
                           :error-fn error-fn :timeout-fn timeout-fn
                           :timeout timeout :progress-fn progress-fn))

;;;###autoload
(defun duet-rpc-notify (method &optional params)
  "Tell the server METHOD with PARAMS, expecting no answer.
METHOD and PARAMS are as in `duet-rpc-request'."
  (duet-rpc--notify (duet-rpc--ensure-server) method params))

(defun duet-rpc-cancel (call)
  "Cancel CALL, which `duet-rpc-async-request' returned.
None of its functions is called any more."
  (when (duet-rpc--finish-call call '(cancelled))
    (duet-rpc--send-cancel call)))

(defun duet-rpc-error-code (err)
  "Return the JSON-RPC code of ERR, a `duet-rpc-error', or nil."
  (nth 2 err))

(defun duet-rpc-error-data (err)
  "Return what the server added to ERR, a `duet-rpc-error'."
  (nth 3 err))


;;; Starting and stopping

;;;###autoload
(defun duet-rpc-start (&optional role tell)
  "Start the daemon of this buffer's host, unless it is running.
There is no need to: every call does it.

With a prefix argument, or if ROLE is `gateway', start the gateway.
TELL, which is t if called by a person, means to say that it starts."
  ;; Not `called-interactively-p', which is nil in a menu of transient.el.
  (interactive (list (and current-prefix-arg 'gateway) t))
  (let* ((server (duet-rpc--server role))
         (name (duet-rpc--server-name server)))
    (duet-rpc--with-user-errors
      (if (memq (duet-rpc--server-state server) '(starting ready))
          (message "%s runs already; %s starts it anew"
                   name (duet-rpc--command-hint server 'duet-rpc-restart))
        (setf (duet-rpc--server-quick-exits server) 0)
        (duet-rpc--launch server)
        (when tell
          (message "%s is starting; %s tells how it is"
                   name (duet-rpc--command-hint server 'duet-rpc-status)))))))

;;;###autoload
(defun duet-rpc-stop (&optional role tell)
  "Stop the daemon of this buffer's host.
Ask it to leave; after two seconds, kill it.

With a prefix argument, or if ROLE is `gateway', stop the gateway and
all that is behind it.  TELL is as in `duet-rpc-start'."
  (interactive (list (and current-prefix-arg 'gateway) t))
  (let ((server (duet-rpc--server role)))
    (duet-rpc--stop server)
    (when tell
      (message "%s has stopped; the next call starts it"
               (duet-rpc--server-name server)))))

;;;###autoload
(defun duet-rpc-restart (&optional role tell)
  "Stop the daemon of this buffer's host and start it again.
This is also the way on after it has died too often.

With a prefix argument, or if ROLE is `gateway', restart the gateway.
TELL is as in `duet-rpc-start'."
  (interactive (list (and current-prefix-arg 'gateway) t))
  (duet-rpc-stop role)
  (duet-rpc-start role)
  (when tell
    (message "%s is starting anew" (duet-rpc--server-name (duet-rpc--server role)))))

;;;###autoload
(defun duet-rpc-status (&optional role tell)
  "Return how the daemon of this buffer's host is, as a symbol.
It is one of `stopped', `starting', `ready', `stopping', `waiting' (for
a restart after a crash) and `failed'.

With a prefix argument, or if ROLE is `gateway', ask of the gateway.
TELL, which is t if called by a person, means to say it."
  (interactive (list (and current-prefix-arg 'gateway) t))
  (let* ((server (duet-rpc--server role))
         (state (duet-rpc--server-state server))
         (busy (hash-table-count (duet-rpc--server-pending server))))
    (when tell
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
                    (if (= busy 1) "1 call" (format "%d calls" busy)))))))
    state))

;;;###autoload
(defun duet-rpc-version (&optional tell)
  "Return the daemon's version.
TELL, which is t if called by a person, means to show it."
  (interactive (list t))
  (duet-rpc--with-user-errors
    (let ((version (plist-get (duet-rpc-request "version") :version)))
      (when tell
        (message "duet-rpc %s (duet-rpc.el %s)" version duet-rpc--version))
      version)))


;;; Other servers, through the gateway

;; The daemon and the gateway are two servers, and a name may be a method
;; of both.  Which of them is meant is told by the name of the function
;; that is called.  A variable that says it would be bound no more when a
;; callback runs; a keyword is forgotten too easily.

;;;###autoload
(defun duet-rpc-gateway (&optional tell)
  "Start the gateway of this buffer's host, unless it is running.
It holds the servers that your configuration names as [backends].  All
functions and commands of the gateway start it, except `duet-rpc-call':
that offers the tools of these servers once the gateway runs.

The daemon's commands, such as `duet-rpc-restart', `duet-rpc-stop' and
`duet-rpc-show-log', are for the gateway with a prefix argument.

TELL, which is t if called by a person, means to say what can be done."
  (interactive (list t))
  (duet-rpc-start 'gateway)
  (when tell
    (message "M-x duet-rpc-backends shows what is behind the gateway, \
M-x duet-rpc-call calls it")))

;;;###autoload
(cl-defun duet-rpc-gateway-request (method &optional params &key timeout)
  "Call METHOD through the gateway with PARAMS and return the answer.
METHOD is NAME/method for a method of the backend NAME, NAME__tool for a
tool of it, or a method of the gateway itself, such as gateway/status.
PARAMS and TIMEOUT, the result and the errors are as in
`duet-rpc-request'; \\[keyboard-quit] cancels the call at the backend too.

The result of a tool is what its server says, a plist of `:content' and
the like, also where `:isError' in it tells of a failure."
  (duet-rpc--request (duet-rpc--ensure-server 'gateway) method params
                     :timeout timeout))

;;;###autoload
(cl-defun duet-rpc-gateway-async-request (method params &key success-fn error-fn
                                                 timeout-fn timeout progress-fn)
  "Call METHOD through the gateway with PARAMS and return at once.
METHOD is as in `duet-rpc-gateway-request'.  SUCCESS-FN, ERROR-FN,
TIMEOUT-FN, TIMEOUT and PROGRESS-FN are as in `duet-rpc-async-request',
and so is what this returns."
  (duet-rpc--async-request (duet-rpc--ensure-server 'gateway) method params
                           :success-fn (or success-fn #'ignore)
                           :error-fn error-fn :timeout-fn timeout-fn
                           :timeout timeout :progress-fn progress-fn))

;;;###autoload
(defun duet-rpc-gateway-notify (method &optional params)
  "Tell a backend METHOD with PARAMS, expecting no answer.
METHOD is NAME/method; PARAMS is as in `duet-rpc-request'."
  (duet-rpc--notify (duet-rpc--ensure-server 'gateway) method params))

(defvar duet-rpc--handlers (make-hash-table :test #'equal)
  "The functions of `duet-rpc-gateway-handle' by method.")

;;;###autoload
(defun duet-rpc-gateway-handle (method function)
  "Have FUNCTION called with what comes from the gateway as METHOD.
METHOD is NAME/method for what the backend NAME sends as method, or
gateway/stateChanged.  FUNCTION takes the params.  It is called from the
top level, so that it may ask a person or call other methods, and with a
`default-directory' on the gateway's host.

If METHOD is a request, what FUNCTION returns is the answer.  An error
in it is the answer too; `jsonrpc-error' lets it choose the code.  A
request for which there is no function is refused at once.

Each METHOD has one function, the last one given; nil removes it."
  (if function
      (puthash method function duet-rpc--handlers)
    (remhash method duet-rpc--handlers)))


;;; Transport: the program to run

(defun duet-rpc--program-candidates ()
  "Return the files to look for, as an alist of (FILE . WHERE-THAT-IS).
A FILE without a directory is looked for on the path."
  (let* ((el (and duet-rpc--file
                  (concat (file-name-sans-extension duet-rpc--file) ".el")))
         (beside (lambda (file)
                   (expand-file-name "duet-rpc.pyz" (file-name-directory file)))))
    (delete-dups
     (cond
      ((null duet-rpc-program)
       `(,@(and el
                `((,(funcall beside el) . "beside duet-rpc.el")
                  ;; Package managers that build elsewhere link the file there.
                  ,@(unless (equal el (file-truename el))
                      `((,(funcall beside (file-truename el))
                         . "beside the file that duet-rpc.el links to")))))
         ("duet-rpc" . "on the path")))
      ((file-name-directory duet-rpc-program)
       `((,(expand-file-name duet-rpc-program "~/") . "the option `duet-rpc-program'")))
      (t `((,duet-rpc-program . "the option `duet-rpc-program', on the path")))))))

(defun duet-rpc--find-program (server)
  "Return the first of `duet-rpc--program-candidates' that SERVER's host can run."
  (let ((remote (not (equal (duet-rpc--server-host server) ""))))
    (or (cl-loop
         for (file) in (duet-rpc--program-candidates)
         thereis (cond
                  ((not (file-name-directory file)) (executable-find file remote))
                  ((not (duet-rpc--python-program-p file))
                   ;; Such a program does not work on another host than its own.
                   (let ((name (concat (duet-rpc--server-host server) file)))
                     (and (file-executable-p name) (not (file-directory-p name)) file)))
                  ((file-regular-p file)
                   (if remote (duet-rpc--copy-to-host file (duet-rpc--server-host server)) file))))
        (duet-rpc--signal-program-not-found server))))

(defun duet-rpc--signal-program-not-found (server)
  "Signal that there is no program for SERVER, and say what to do."
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
  "Signal `duet-rpc-error' if an option has a value that it cannot have."
  (when-let ((wrong (duet-rpc--invalid-option)))
    (signal 'duet-rpc-error (list wrong))))

(defun duet-rpc--invalid-option ()
  "Return what is wrong with the value of an option, or nil."
  (cl-flet ((strings-p (value)
              (and (proper-list-p value) (cl-every #'stringp value))))
    (cl-loop
     for (option right must) in
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
     unless right
     return (format "The option `%s' is %S; it must be %s"
                    option (symbol-value option) must))))

(defun duet-rpc--command (server)
  "Return the command line of SERVER."
  (let* ((gateway (duet-rpc--server-role server))
         (whole (if gateway duet-rpc-gateway-command duet-rpc-program))
         (command
          (cond
           ((consp whole) whole)
           ((consp duet-rpc-program)
            (signal 'duet-rpc-error
                    '("`duet-rpc-program' is the whole command of the daemon; \
set `duet-rpc-gateway-command' to that of the gateway")))
           (t (let ((program (duet-rpc--find-program server)))
                `(,@(and (duet-rpc--python-program-p program) (list duet-rpc-python))
                  ,program
                  ,@(if gateway '("gateway") duet-rpc-arguments)))))))
    (if (equal (duet-rpc--server-host server) "")
        command
      ;; Emacs 28.2 hangs on a terminal that is not raw.
      (list "sh" "-c" (concat "stty raw -echo > /dev/null 2>&1; "
                              "printf 'duet-rpc %s\\n' ready; exec "
                              (mapconcat #'shell-quote-argument command " "))))))

(defun duet-rpc--await-ready (process)
  "Wait until the terminal of PROCESS, on another host, is raw.
What is sent before that, the shell in between may take for its own."
  (let ((heard "")
        (end (+ (float-time) duet-rpc-timeout)))
    (set-process-filter process (lambda (_ text) (setq heard (concat heard text))))
    (while (and (not (string-search "duet-rpc ready" heard))
                (process-live-p process)
                (< (float-time) end))
      (accept-process-output process 0.1))))

(defun duet-rpc--python-program-p (file)
  "Return non-nil if FILE is a program in Python."
  (member (file-name-extension file) '("pyz" "py")))

(defun duet-rpc--copy-to-host (file host)
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


;;; Transport: the process

(defconst duet-rpc--quick-exit-seconds 10
  "A daemon that dies within so many seconds had a short life.")

(defconst duet-rpc--max-quick-exits 5
  "After so many short lives in a row a daemon is not started again.")

(defun duet-rpc--server (&optional role)
  "Return the server in ROLE of the current buffer's host, running or not."
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
  "Return what a person types for COMMAND to act on SERVER."
  (format (if (duet-rpc--server-role server) "C-u M-x %s" "M-x %s") command))

(defun duet-rpc--ensure-server (&optional role)
  "Return the server in ROLE of the current buffer's host, started if need be."
  (let ((server (duet-rpc--server role)))
    (unless (and (duet-rpc--running-p server)
                 (not (eq (duet-rpc--server-state server) 'stopping)))
      (if (eq (duet-rpc--server-state server) 'failed)
          (signal 'duet-rpc-error (list (duet-rpc--server-reason server)))
        (duet-rpc--launch server)))
    server))

(defun duet-rpc--running-p (server)
  "Return non-nil if SERVER's daemon lives."
  (when-let ((process (duet-rpc--server-process server)))
    (or (process-live-p process)
        (progn
          ;; It has just died; this runs the sentinel now,
          (delete-process process)
          ;; unless it died before it had one, or its sentinel waits.
          (duet-rpc--handle-exit server #'ignore process nil)))))

(defun duet-rpc--server-version (server)
  "Return the version that SERVER gave, or nil."
  (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :version))

(defun duet-rpc--set-state (server state)
  "Set SERVER's state to STATE, for all to see."
  (setf (duet-rpc--server-state server) state)
  (when (duet-rpc--server-role server)
    (duet-rpc--mark-backends-gone server))
  (duet-rpc--update-mode-line))

(defun duet-rpc--cancel-restart (server)
  "Give up a restart of SERVER that is due."
  (when (duet-rpc--server-restart-timer server)
    (cancel-timer (duet-rpc--server-restart-timer server))
    (setf (duet-rpc--server-restart-timer server) nil
          (duet-rpc--server-reason server) nil)
    (duet-rpc--set-state server 'stopped)))

(defun duet-rpc--stop (server)
  "Stop SERVER's daemon: ask it to leave; after two seconds, kill it."
  (let* ((alive (duet-rpc--running-p server)) ; if not, a restart may be due now
         (process (duet-rpc--server-process server))
         (end (+ (float-time) 2)))
    (duet-rpc--cancel-restart server)
    (setf (duet-rpc--server-reason server) nil)
    (if (not alive)
        (duet-rpc--set-state server 'stopped)
      (duet-rpc--set-state server 'stopping)
      (unwind-protect
          (progn
            ;; It may not even read.
            (with-timeout (2)
              (ignore-errors
                (duet-rpc--send-request server "shutdown" nil :timeout 2)
                (process-send-eof process)))
            (while (and (process-live-p process) (< (float-time) end))
              (accept-process-output process 0.05)))
        (delete-process process)))))

(defun duet-rpc-unload-function ()
  "Stop all daemons and leave the mode line, for `unload-feature'."
  (duet-rpc-mode-line-mode -1)
  (mapc #'duet-rpc--stop (hash-table-values duet-rpc--servers))
  nil)

(defun duet-rpc--launch (server)
  "Start a daemon for SERVER."
  (duet-rpc--cancel-restart server)
  (duet-rpc--check-options)
  (when (eq (duet-rpc--server-state server) 'stopping)
    (duet-rpc--stop server)) ; to the end: there is one daemon at a time
  ;; Not in the caller's buffer, which may have an environment or a path
  ;; of its own: the daemon serves all buffers.
  (with-temp-buffer
    (setq default-directory (duet-rpc--directory server))
    (duet-rpc--launch-process server)))

(defun duet-rpc--directory (server)
  "Return the directory that SERVER's daemon is to run in."
  (let* ((host (duet-rpc--server-host server))
         (directory (concat host (file-local-name (or duet-rpc-directory "~/")))))
    (cond
     ((file-directory-p directory) (file-name-as-directory (expand-file-name directory)))
     (duet-rpc-directory
      (signal 'duet-rpc-error
              (list (format "There is no directory %s to run in; set \
`duet-rpc-directory' to one, or to nil" directory))))
     (t (concat host "/")))))

(defun duet-rpc--launch-process (server)
  "Start a daemon for SERVER in the current directory."
  (let* ((host (duet-rpc--server-host server))
         (name (duet-rpc--server-name server))
         (command (duet-rpc--command server))
         ;; A quit amid this would leave a daemon that nobody knows of; but
         ;; another host may take its time.
         (inhibit-quit (or inhibit-quit (equal host "")))
         (process nil)
         (start
          (lambda ()
            (let ((process-adaptive-read-buffering nil))
              (setq process
                    (make-process
                     :name name :command command :connection-type 'pipe
                     :coding 'utf-8-emacs-unix :noquery t :file-handler t
                     ;; This name is what jsonrpc.el counts on.
                     :stderr (get-buffer-create (format "*%s stderr*" name)))))
            (unless (equal host "")
              ;; TRAMP's sentinel cleans up, but takes the last words with it.
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
    (duet-rpc--send-request server "initialize" nil :buffer t
                            :success-fn (lambda (info) (duet-rpc--handle-initialize server info))
                            :error-fn (lambda (_)
                                        ;; Dying is no answer.
                                        (when (duet-rpc--server-process server)
                                          (duet-rpc--handle-initialize server nil))))))

(defun duet-rpc--handle-initialize (server info)
  "Take INFO, what SERVER answered to `initialize', or nil.
Any JSON-RPC server will do, but a duet-rpc must fit this library."
  (when (eq (duet-rpc--server-state server) 'starting)
    (setf (duet-rpc--server-info server) (and (listp info) info))
    (duet-rpc--set-state server 'ready)
    (when (duet-rpc--duet-rpc-server-p server)
      (let ((protocol (plist-get info :protocolVersion))
            (version (duet-rpc--server-version server))
            (remedy "Take duet-rpc.pyz and duet-rpc.el from one release; \
M-x duet-rpc-doctor shows where each of them lies"))
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
  "Return non-nil if SERVER is known to be a duet-rpc."
  (equal (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :name)
         "duet-rpc"))

(defun duet-rpc--major-minor (version)
  "Return the part of VERSION that must be equal on both sides."
  (and (stringp version)
       (string-match "\\`[0-9]+\\.[0-9]+" version)
       (match-string 0 version)))

(defun duet-rpc--fail-server (server why)
  "End SERVER's daemon for good, because of WHY."
  (let ((process (duet-rpc--server-process server)))
    (setf (duet-rpc--server-reason server) why)
    (duet-rpc--set-state server 'failed)
    (duet-rpc--fail-pending server why)
    (duet-rpc--run-soon (lambda () (delete-process process)))))

(defun duet-rpc--fail-pending (server why)
  "End everything pending at SERVER with the error text WHY."
  (dolist (call (hash-table-values (duet-rpc--server-pending server)))
    (duet-rpc--finish-call call `(error (:code -1 :message ,why)))))

(defun duet-rpc--sentinel (server next process event)
  "Take note if SERVER's PROCESS has died; hand EVENT on to NEXT."
  (when (and (not (process-live-p process))
             (eq process (duet-rpc--server-process server)))
    (let ((stderr (get-buffer-process
                   (jsonrpc-stderr-buffer (duet-rpc--server-connection server))))
          (pause (if (equal (duet-rpc--server-host server) "") 0.3 1))
          (end (+ (float-time) 1)))
      ;; Its last words may still be on the way; but a child of its own
      ;; may go on writing for ever.
      (while (and stderr
                  (accept-process-output stderr pause nil t)
                  (< (float-time) end)))
      (duet-rpc--handle-exit server next process event))))

(defun duet-rpc--handle-exit (server next process event)
  "End the life of SERVER's dead PROCESS, unless that is done; return nil.
A timer may call while the sentinel waits, and must find it done before
the next life begins.  NEXT and EVENT are as in `duet-rpc--sentinel'."
  (when (eq process (duet-rpc--server-process server))
    (let ((buffers (list (process-buffer process)
                         (jsonrpc-stderr-buffer (duet-rpc--server-connection server)))))
      (setf (duet-rpc--server-process server) nil)
      (duet-rpc--process-exited server process)
      ;; Even a message that is not shown wipes the one that is.
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
  "End everything pending at SERVER's dead PROCESS; see how to go on."
  (let* ((name (duet-rpc--server-name server))
         (code (process-exit-status process))
         (signal (eq (process-status process) 'signal))
         (tail (duet-rpc--stderr-tail server 5))
         (how (cond (signal (format "was killed by signal %d" code))
                    ((string-match-p "Python is too old" tail)
                     "found too old a Python (see `duet-rpc-python')")
                    ((= code 256) "closed its input") ; so Emacs notes it
                    ((= code 127) "was not found; is `duet-rpc-python' right")
                    (t (format "exited with code %d" code))))
         (words (if (equal tail "")
                    ""
                  (format ".  Its last words (%s has more):\n%s"
                          (duet-rpc--command-hint server 'duet-rpc-show-log) tail))))
    (duet-rpc--log server "%s" how)
    (cond
     ((eq (duet-rpc--server-state server) 'failed)
      (duet-rpc--fail-pending server (duet-rpc--server-reason server)))
     ((eq (duet-rpc--server-state server) 'stopping)
      (duet-rpc--fail-pending server (format "%s was stopped before it answered" name))
      (duet-rpc--set-state server 'stopped))
     ((and (= code 0) (not signal))
      (duet-rpc--fail-pending server (format "%s ended before it answered" name))
      (duet-rpc--set-state server 'stopped))
     (t
      (duet-rpc--fail-pending server (format "%s %s before it answered%s" name how words))
      (duet-rpc--handle-crash server how words)))))

(defun duet-rpc--handle-crash (server how words)
  "Start SERVER again in a while, or never.
HOW says how it died, WORDS what it said last."
  (let* ((name (duet-rpc--server-name server))
         (short (< (- (float-time) (duet-rpc--server-start-time server))
                   duet-rpc--quick-exit-seconds))
         (deaths (setf (duet-rpc--server-quick-exits server)
                       (if short (1+ (duet-rpc--server-quick-exits server)) 1)))
         (delay (expt 2 (1- deaths))))
    (setf (duet-rpc--server-reason server)
          (cond
           ((>= deaths duet-rpc--max-quick-exits)
            (format "%s %s, %d times in a row, and is not started again; \
once it is mended, %s%s" name how deaths (duet-rpc--command-hint server 'duet-rpc-restart) words))
           ;; A timer must not ask for a password.
           ((not (equal (duet-rpc--server-host server) ""))
            (format "%s %s; the next call starts it again%s" name how words))
           (t (format "%s %s; it starts again in %d s%s" name how delay words))))
    (message "%s" (duet-rpc--server-reason server))
    (cond
     ((>= deaths duet-rpc--max-quick-exits)
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
  "Give STRING from SERVER's PROCESS to NEXT, jsonrpc.el's filter.
Skip stray output: jsonrpc.el looks for a header in 100 bytes only, and
would wait behind more than that for ever."
  (process-put process 'duet-rpc-last-output (float-time))
  (while string
    (setq string
          (condition-case err
              (progn (cl-letf (((symbol-function 'jsonrpc--json-read)
                                (lambda () (duet-rpc--read-message server))))
                       (funcall next process string))
                     (and (duet-rpc--skip-stray-output server process) ""))
            ;; It fails on a message with an unknown member, and
            ;; version 1.0.14 then leaves those behind it unread.
            (error
             (duet-rpc--log server "jsonrpc.el failed on a message: %s"
                            (error-message-string err))
             (and (> (buffer-size (process-buffer process)) 0) ""))))))

(defun duet-rpc--read-message (server)
  "Read a message from SERVER behind point."
  (let* ((message (duet-rpc--read-json))
         (err (plist-get message :error)))
    (when (and err (not (plist-get message :id)))
      (duet-rpc--handle-null-id-error server err))
    message))

(defun duet-rpc--handle-null-id-error (server err)
  "Take ERR, with which SERVER has answered no call in particular."
  (let ((calls (hash-table-values (duet-rpc--server-pending server))))
    (dolist (call calls)
      (setf (duet-rpc--call-null-id-error call) (plist-get err :message)))
    ;; What is too large is not read, so its id is not known.
    (when (and (equal (plist-get (plist-get err :data) :reason) "oversize")
               (= 1 (length calls)))
      (duet-rpc--finish-call (car calls) (list 'error err)))))

(defun duet-rpc--read-json ()
  "Return the JSON behind point.
What Emacs's own parser refuses, such as large integers, null characters
in version 28 or half a surrogate pair, the slower json.el may take:
jsonrpc.el would drop the message, and leave its call to time out."
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
  "What a message begins with.
It cannot stand inside one: JSON has no bare carriage return in a string
and no such word outside.")

(defun duet-rpc--skip-stray-output (server process)
  "Delete what stands before the next header in the output of PROCESS.
Return non-nil if there was something; tell a person of the first time.
SERVER is the server."
  (when (buffer-live-p (process-buffer process))
    (with-current-buffer (process-buffer process)
      ;; Point is behind the header while a message is read.
      (when (and (bobp) (> (buffer-size) 100))
        (let ((next (duet-rpc--next-header)))
          (when (or next (> (buffer-size) 100000))
            (let ((text (duet-rpc--discard-output server (or next (- (point-max) 100)))))
              (unless (process-get process 'duet-rpc-stray-output-reported)
                (process-put process 'duet-rpc-stray-output-reported t)
                (message "duet-rpc: %s; %s shows what more there will be" text
                         (duet-rpc--command-hint server 'duet-rpc-show-log))))
            t))))))

(defun duet-rpc--next-header ()
  "Return where the next header begins behind point, or nil."
  (save-excursion
    (unless (eobp) (forward-char 1))
    (and (re-search-forward duet-rpc--header nil t) (match-beginning 0))))

(defun duet-rpc--discard-output (server end)
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
                        (truncate-string-to-width bytes 60 nil nil "..."))))
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
          (when (or next (> (- (float-time) (process-get process 'duet-rpc-last-output)) 1))
            (prog1 (duet-rpc--discard-output server (or next (point-max)))
              (funcall (process-filter process) process ""))))))))


;;; Transport: the log

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

(defun duet-rpc--redirect-stderr (server buffer)
  "Send what arrives in BUFFER, SERVER's stderr, to its log instead."
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
  "Return the last LINES lines that SERVER's daemon wrote in this life."
  (with-current-buffer (duet-rpc--log-buffer server)
    (let* ((tail (duet-rpc--server-stderr-start server))
           (all (split-string
                 (buffer-substring-no-properties
                  ;; The log that it marks may have been killed.
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
  "The token of the last call; it tells calls apart, whatever their server.")

(defvar duet-rpc--sent-id nil
  "The id of the request being sent.")

(defvar duet-rpc--queue nil
  "Functions to call, the oldest first.")

(defclass duet-rpc--connection (jsonrpc-process-connection) ()
  :documentation "A jsonrpc.el connection that tells the ids it gives.")

(cl-defstruct (duet-rpc--incoming-request (:constructor duet-rpc--make-incoming-request)
                                          (:copier nil))
  "A request of a backend, and the function that is to answer it."
  server method params function)

(cl-defmethod jsonrpc-connection-send ((connection duet-rpc--connection)
                                       &rest args)
  "Send ARGS over CONNECTION; note the id, and leave out nil params.
Without this, jsonrpc.el would send them as null.  If ARGS are a reply
with a question for its result, answer that later instead."
  (let ((id (plist-get args :id))
        (result (plist-get args :result)))
    (if (duet-rpc--incoming-request-p result)
        (duet-rpc--run-soon (lambda () (duet-rpc--reply connection id result)))
      ;; A notification that a timer sends amid a request has no id, and
      ;; the id of a reply is the other side's.
      (when (and id (not (plist-member args :result)) (not (plist-member args :error)))
        (setq duet-rpc--sent-id id))
      (apply #'cl-call-next-method connection
             (if (plist-get args :params)
                 args
               (cl-loop for (key value) on args by #'cddr
                        unless (eq key :params) append (list key value)))))))

(defun duet-rpc--method-symbol (method)
  "Return METHOD as the symbol that jsonrpc.el wants."
  (if (stringp method) (intern method) method))

(defun duet-rpc--notify (server method params)
  "Tell SERVER METHOD with PARAMS, as `duet-rpc-notify' does."
  (duet-rpc--with-send-errors server method
    (jsonrpc-notify (duet-rpc--server-connection server)
                    (duet-rpc--method-symbol method) params)))

(defun duet-rpc--send-request (server method params &rest slots)
  "Send a request for METHOD with PARAMS to SERVER; return the call.
SLOTS are more slots of the call."
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
          ;; No timeout here: progress puts it off, which jsonrpc.el
          ;; knows nothing of.
          (jsonrpc-async-request
           (duet-rpc--server-connection server) (duet-rpc--method-symbol method) params
           :success-fn (lambda (result) (duet-rpc--finish-call call (list 'result result)))
           :error-fn (lambda (err) (duet-rpc--finish-call call (list 'error err)))
           :timeout-fn #'ignore :timeout nil)
          (setf (duet-rpc--call-id call) duet-rpc--sent-id))
      (unless (duet-rpc--call-id call)
        (duet-rpc--abort-send call duet-rpc--sent-id)))
    (duet-rpc--pending-changed call)
    call))

(defun duet-rpc--async-request (server method params &rest slots)
  "Call METHOD of SERVER with PARAMS, as `duet-rpc-async-request' does.
SLOTS are more slots of the call, `:success-fn' among them."
  (let ((call (apply #'duet-rpc--send-request server method params
                     :buffer (current-buffer) slots)))
    (duet-rpc--schedule-deadline-check server (duet-rpc--set-deadline call))
    call))

(defun duet-rpc--abort-send (call id)
  "End CALL, the sending of which was interrupted; ID is its id, if any.
Emacs keeps what it has not yet written and sends it before anything
else, so the server still gets the whole request."
  (duet-rpc--finish-call call '(cancelled))
  (when id
    (setf (duet-rpc--call-id call) id)
    ;; The pipe may be full, and nobody reads.
    (with-timeout (0.5)
      (duet-rpc--send-cancel call))))

(defun duet-rpc--signal-send-error (server method err)
  "Signal that METHOD was not sent to SERVER because of ERR."
  (unless (duet-rpc--running-p server)
    (setq err (list 'error (or (duet-rpc--server-reason server) "the server has ended"))))
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
  "Wait until CALL has ended; cancel it if that is interrupted."
  (let ((process (duet-rpc--server-process (duet-rpc--call-server call))))
    (duet-rpc--set-deadline call)
    (unwind-protect
        ;; Timers and filters inhibit quitting; a server that hangs must
        ;; not hang Emacs there either.
        (let ((inhibit-quit nil))
          (while (progn
                   ;; Short, because the answer may be read inside a timer
                   ;; that runs in here.
                   (accept-process-output (and (process-live-p process) process) 0.1)
                   (not (duet-rpc--call-outcome call)))
            (when (> (float-time) (duet-rpc--call-deadline call))
              (duet-rpc--time-out-call call))))
      ;; Not interrupted by the next C-g of an impatient person.
      (let ((inhibit-quit t))
        (duet-rpc-cancel call)))))

(defun duet-rpc--finish-call (call outcome)
  "End CALL with OUTCOME and return t; return nil if it has ended already."
  (unless (duet-rpc--call-outcome call)
    (setf (duet-rpc--call-outcome call) outcome)
    (remhash (duet-rpc--call-token call)
             (duet-rpc--server-pending (duet-rpc--call-server call)))
    (when (and (eq (car outcome) 'result)
               (equal (format "%s" (duet-rpc--call-method call)) "shutdown")
               (duet-rpc--duet-rpc-server-p (duet-rpc--call-server call)))
      (duet-rpc--set-state (duet-rpc--call-server call) 'stopping))
    (when (duet-rpc--call-success-fn call) ; else somebody waits for it
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
  "Have all see that CALL has begun or ended."
  (let ((server (duet-rpc--call-server call)))
    (duet-rpc--update-mode-line)
    ;; The list of backends shows what is pending, but not its own question.
    (when (and (duet-rpc--server-role server)
               (not (equal (duet-rpc--call-method call) "gateway/status")))
      (duet-rpc--refresh-backends-soon server))))

(defun duet-rpc--run-callback (call function &rest args)
  "Have FUNCTION called with ARGS in the buffer of CALL, soon.
Not now, because this may be a process filter, in which FUNCTION could
not wait for another answer.  The buffer t means now, and any buffer."
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
                (message "duet-rpc: the function called after %s failed: %s"
                         (duet-rpc--call-method call)
                         (error-message-string err)))))))))))

(defun duet-rpc--run-soon (function)
  "Call FUNCTION from the top level, after all that were queued before."
  (setq duet-rpc--queue (nconc duet-rpc--queue (list function)))
  (run-at-time 0 nil (lambda () (funcall (or (pop duet-rpc--queue) #'ignore)))))

(defun duet-rpc--send-cancel (call)
  "Tell the server that nobody waits for CALL any more."
  (let ((server (duet-rpc--call-server call)))
    (when (duet-rpc--running-p server)
      (ignore-errors
        (jsonrpc-notify (duet-rpc--server-connection server)
                        '$/cancelRequest (list :id (duet-rpc--call-id call)))))))

(defun duet-rpc--set-deadline (call)
  "Let CALL time out later, counted from now; return when."
  (setf (duet-rpc--call-deadline call)
        (+ (float-time) (duet-rpc--call-timeout call))))

(defun duet-rpc--schedule-deadline-check (server time)
  "Look at TIME, or before, for what is overdue at SERVER.
One timer for them all: thousands would slow Emacs down."
  (let ((alarm (duet-rpc--server-deadline-timer server)))
    (when (or (not alarm) (< time (car alarm)))
      (when alarm (cancel-timer (cdr alarm)))
      (setf (duet-rpc--server-deadline-timer server)
            (cons time (run-with-timer (max 0 (- time (float-time))) nil
                                       #'duet-rpc--check-deadlines server))))))

(defun duet-rpc--check-deadlines (server &optional again)
  "End what is overdue at SERVER.
If Emacs was busy, the answer may be in the pipe: if there is something
to read, take that and look AGAIN, but once only."
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
  "End CALL because its time is up."
  (let* ((server (duet-rpc--call-server call))
         (text (format "%s: no answer within %s s"
                       (duet-rpc--call-method call) (duet-rpc--call-timeout call)))
         (stuck (duet-rpc--resynchronize server))
         (complaint (duet-rpc--call-null-id-error call)))
    (when (duet-rpc--finish-call
           call
           (list 'timeout
                 (concat text
                         (and stuck (concat "; " stuck))
                         (and complaint
                              (format "; meanwhile the server complained: %s"
                                      complaint)))))
      (duet-rpc--send-cancel call))))

(defun duet-rpc--format-error (method err)
  "Describe ERR, the error object that METHOD was answered with."
  (let* ((message (format "%s" (plist-get err :message)))
         (data (plist-get err :data))
         (expected (and (proper-list-p data) (plist-get data :expected))))
    (concat (format "%s: %s" method message)
            ;; A duet-rpc says it in its message already.
            (and (stringp expected) (not (string-search expected message))
                 (format "; %s: expected %s, received %s" (plist-get data :param)
                         expected (plist-get data :received))))))

(defun duet-rpc--dispatch-notification (server method params)
  "Take the notification METHOD with PARAMS from SERVER."
  (if (eq method '$/progress)
      (when-let ((call (gethash (plist-get params :token)
                                (duet-rpc--server-pending server))))
        (duet-rpc--set-deadline call)
        (when (duet-rpc--call-progress-fn call)
          (duet-rpc--run-callback call
                                  (lambda (value)
                                    ;; Who waited has the answer by now.
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
  "Return the function that handles METHOD from SERVER, or nil."
  (and (duet-rpc--server-role server)
       (gethash (symbol-name method) duet-rpc--handlers)))

(defun duet-rpc--call-handler (server function params)
  "Call FUNCTION with PARAMS, which came from SERVER."
  (with-temp-buffer
    (setq default-directory (concat (duet-rpc--server-host server) "/"))
    (with-local-quit (funcall function params))))

(defun duet-rpc--report-handler-error (method err)
  "Tell a person of ERR in the function that handles METHOD."
  (message "duet-rpc: the function that handles %s failed: %s"
           method (error-message-string err)))

(defun duet-rpc--dispatch-request (server method params)
  "Take the request METHOD with PARAMS from SERVER.
It is answered later, because this may be a process filter, in which a
function could ask nobody."
  (if-let ((function (duet-rpc--handler-for server method)))
      (duet-rpc--make-incoming-request :server server :method method :params params
                                       :function function)
    (jsonrpc-error :code -32601
                   :message (format "Method not found: %s" method))))

(defun duet-rpc--reply (connection id question)
  "Answer QUESTION, which came over CONNECTION as ID, whatever happens."
  (let* ((method (duet-rpc--incoming-request-method question))
         (function (duet-rpc--incoming-request-function question))
         (refuse (lambda (code text) `(:error (:code ,code :message ,text))))
         ;; If a person quits.
         (reply (funcall refuse -32800 "Request cancelled")))
    (condition-case err
        (duet-rpc--call-handler (duet-rpc--incoming-request-server question)
                                (lambda (params)
                                  (setq reply (list :result (funcall function params))))
                                (duet-rpc--incoming-request-params question))
      (jsonrpc-error
       (setq reply (funcall refuse (or (alist-get 'jsonrpc-error-code (cddr err)) -32603)
                            (or (alist-get 'jsonrpc-error-message (cddr err))
                                (format "%s" (cadr err))))))
      (error
       (duet-rpc--report-handler-error method err)
       (setq reply (funcall refuse -32603 (error-message-string err)))))
    (condition-case err
        (apply #'jsonrpc-connection-send connection :id id reply)
      ;; What it returned is no JSON; or the gateway has gone.
      (error
       (duet-rpc--report-handler-error method err)
       (ignore-errors
         (apply #'jsonrpc-connection-send connection :id id
                (funcall refuse -32603 (error-message-string err))))))))


;;; Descriptions of methods

;; A description is a plist in OpenRPC's form: `:name', `:summary',
;; `:description', `:params' (a vector), `:result', `:x-source'; and `:role',
;; which is `gateway' if it is called through the gateway.

(defun duet-rpc--methods ()
  "Return the descriptions of all methods, or nil if there are none."
  (let ((own (duet-rpc--daemon-methods))
        (name (lambda (each) (plist-get each :name))))
    (append own (cl-set-difference (duet-rpc--gateway-methods) own
                                   :test #'equal :key name))))

(defun duet-rpc--gateway-methods ()
  "Return the descriptions of what the gateway has, or nil if it is down."
  (let ((server (duet-rpc--server 'gateway)))
    (when (duet-rpc--running-p server)
      (condition-case err
          (mapcar (lambda (method) `(:role gateway ,@method))
                  (plist-get (duet-rpc--request server "rpc.discover" nil) :methods))
        ;; The daemon's methods are of use without them.
        (duet-rpc-error
         (message "duet-rpc: the tools behind the gateway are missing: %s" (cadr err))
         nil)))))

(defun duet-rpc--role-for-method (method)
  "Return `gateway' if METHOD, which nothing describes, names a backend."
  (let ((server (duet-rpc--server 'gateway)))
    (when (and (duet-rpc--running-p server)
               (string-match "\\`\\(.+?\\)\\(?:/\\|__\\)." method))
      (let ((name (match-string 1 method)))
        (and (cl-find name (plist-get (duet-rpc--request server "gateway/status" nil)
                                      :backends)
                      :test #'equal :key (lambda (each) (plist-get each :name)))
             'gateway)))))

(defun duet-rpc--daemon-methods ()
  "Return the descriptions of the daemon's methods, or nil if it has none."
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
  "Return the result of METHOD, or nil if the server refuses it."
  (condition-case err
      (duet-rpc-request method)
    (duet-rpc-error
     (unless (and (duet-rpc-error-code err) (< (duet-rpc-error-code err) -1))
       (signal (car err) (cdr err))))))

(defun duet-rpc--parse-signature (text)
  "Make a parameter's description of TEXT, such as \"level: string\"."
  (string-match "\\`\\([^:=]*\\)\\(?::\\([^=]*\\)\\)?\\(=\\)?" text)
  (list :name (string-trim (match-string 1 text))
        :required (if (match-string 3 text) :json-false t)
        :schema (list :type (string-trim (or (match-string 2 text) "any")))))

(defun duet-rpc--find-description (name)
  "Return the description of the method NAME, or nil."
  (cl-find name (duet-rpc--methods)
           :test #'equal :key (lambda (each) (plist-get each :name))))

(defun duet-rpc--signature (description)
  "Return the parameters in DESCRIPTION, for a person."
  (mapconcat (lambda (param)
               (format (if (duet-rpc--required-p param) "%s" "[%s]")
                       (plist-get param :name)))
             (plist-get description :params) " "))

(defun duet-rpc--description-text (description)
  "Return the whole text of DESCRIPTION, its summary first."
  (let ((summary (or (plist-get description :summary) ""))
        (text (or (plist-get description :description) "")))
    (if (string-prefix-p summary text)
        text
      (string-trim (concat summary "\n\n" text)))))

(defun duet-rpc--required-p (param)
  "Return non-nil if PARAM must be given."
  (eq t (plist-get param :required)))

(defun duet-rpc--alternatives (schema)
  "Return the schemas of which SCHEMA takes any, as a list."
  (let ((type (plist-get schema :type))
        (any (or (plist-get schema :anyOf) (plist-get schema :oneOf))))
    (cond
     (any (append any nil))
     ((vectorp type) (mapcar (lambda (each) `(:type ,each ,@schema)) type))
     (t (list schema)))))

(defun duet-rpc--type-name (schema)
  "Name the type in SCHEMA, for a person."
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
  "Ask with PROMPT for one of METHODS; return its description.
Its parameters are `unknown' if none of them describes it.  INITIAL is
what stands there at first."
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
  "Ask for the parameters in DESCRIPTION; return them as a plist."
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
              (t (error "Not an object or an array"))))))
      (mapc (lambda (param)
              (let* ((text-p (equal (duet-rpc--type-name (plist-get param :schema)) "string"))
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
  "Return NAME as the keyword of a plist."
  (intern (concat ":" name)))

(defun duet-rpc--read-param (param &optional offer)
  "Ask for the value of PARAM; return `omit' if it is left out.
OFFER means to offer the region and the buffer for it."
  (let* ((schema (plist-get param :schema))
         (null-p (lambda (each) (equal (plist-get each :type) "null")))
         (all (duet-rpc--alternatives schema))
         (kinds (cl-remove-if null-p all))
         (kind (and (= 1 (length kinds)) (car kinds)))
         (type (plist-get kind :type))
         (default (plist-get schema :default))
         ;; What no text at all stands for.
         (empty (cond ((not (duet-rpc--required-p param)) 'omit)
                      ((cl-some null-p all) nil)
                      (t 'again)))
         (prompt (concat (plist-get param :name) " (" (duet-rpc--type-name schema)
                         (cond ((eq empty 'again) "")
                               ((not empty) ", empty for null")
                               (default (format ", default %s" (duet-rpc--format-value default)))
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
      ;; Where a text is as good as anything, it needs no quotation marks.
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
  "Ask with PROMPT for one of CHOICES.
EMPTY is the value of no text; `again' means to ask again."
  (let* ((alist (mapcar (lambda (each) (cons (duet-rpc--format-value each) each)) choices))
         (empty (if (and (eq empty 'again) (assoc "" alist)) "" empty))
         (name ""))
    (while (and (equal name "")
                (equal "" (setq name (completing-read prompt alist nil t nil
                                                      'duet-rpc-value-history)))
                (eq empty 'again)))
    (if (equal name "") empty (cdr (assoc name alist)))))

(defun duet-rpc--read-validated (prompt empty parse)
  "Ask with PROMPT until PARSE, called with the text, signals no error.
Return what it returns.  EMPTY is the value of no text, unless it is
`again'."
  (let ((text nil) (value nil) (complaint ""))
    (while complaint
      (setq text (read-string (concat complaint prompt) text 'duet-rpc-value-history))
      (if (and (equal text "") (not (eq empty 'again)))
          (setq value empty
                complaint nil)
        (condition-case err
            (setq value (funcall parse text)
                  complaint nil)
          (error (setq complaint (format "[%s] " (error-message-string err)))))))
    value))

(defun duet-rpc--parse-json (text)
  "Return the value of TEXT, which is JSON.
Objects are hash tables, because {} as a plist would be sent as null."
  (condition-case nil
      (json-parse-string text :null-object nil :false-object :json-false)
    (error (error "Not JSON"))))

(defun duet-rpc--check-number (value schema)
  "Return VALUE if it is a number within SCHEMA; else signal an error."
  (let ((least (plist-get schema :minimum))
        (most (plist-get schema :maximum)))
    (cond
     ((not (numberp value)) (error "Not a number"))
     ((and (equal (plist-get schema :type) "integer") (not (integerp value)))
      (error "Not an integer"))
     ((and least (< value least)) (error "Less than %s" least))
     ((and most (> value most)) (error "More than %s" most))
     (t value))))

(defun duet-rpc--read-text (prompt empty offer)
  "Ask with PROMPT for a text.
EMPTY is the value of no text, unless it is `again'.  OFFER means to
offer the region and the buffer for it."
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
                         (and region "; RET takes the region")
                         (and offer "; C-c C-b takes the buffer")
                         "): ")
                 nil map nil 'duet-rpc-value-history)))
      (cond (whole)
            ((not (equal text "")) text)
            (region)
            ((eq empty 'again) "")
            (t empty)))))


;;; Calling interactively

(defvar duet-rpc-method-history nil
  "The methods called by hand.")

(defvar duet-rpc-value-history nil
  "The parameters typed by hand.")

(defvar duet-rpc--last-call nil
  "The arguments of the last `duet-rpc-call'.")

;;;###autoload
(defun duet-rpc-call (method params &optional how role)
  "Call METHOD with PARAMS and show the result in a buffer.
Interactively, ask for the method and for each of its parameters.
With a prefix argument, insert the result at point, or in place of the
region if that is active.  If the gateway runs, its methods and the
tools behind it are offered too.

From Lisp, HOW is nil, `insert', `replace', `message' or a function
that takes the result.  ROLE is `gateway' to call METHOD through the
gateway.  The result of a tool is then the text that it returns, or else
its structured content."
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
    (user-error "Mark the text to be replaced first"))
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
    (user-error "Nothing to repeat yet; begin with M-x duet-rpc-call"))
  (apply #'duet-rpc-call duet-rpc--last-call))

(defun duet-rpc--call-and-deliver (method params how bounds role)
  "Call METHOD of the server in ROLE with PARAMS; use the result in the way HOW.
BOUNDS is the part of the buffer to replace, as (BEGIN . END)."
  (when (memq how '(insert replace))
    (barf-if-buffer-read-only))
  ;; The buffer may change, or even go, before the answer comes.
  (let* ((begin (copy-marker (or (car bounds) (point)) t))
         (end (copy-marker (or (cdr bounds) (point))))
         (tool (and role (duet-rpc--tool-p method)))
         (answer (duet-rpc--request-with-progress method params role))
         (result (if tool (duet-rpc--tool-result method answer) answer)))
    (pcase how
      ('message (message "%s" (duet-rpc--truncate (duet-rpc--format-value result))))
      ((or 'insert 'replace)
       (unless (marker-buffer begin)
         (user-error "The buffer that was to get the result of %s is gone" method))
       (with-current-buffer (marker-buffer begin)
         (when bounds
           (delete-region begin (max begin end)))
         (goto-char begin)
         (insert (duet-rpc--format-value result t))
         (set-marker begin nil)
         (set-marker end nil)))
      ((or 'nil 'buffer) (duet-rpc--show-result result method (and tool (stringp result))))
      (_ (funcall how result)))))

(defun duet-rpc--request-with-progress (method params role)
  "Call METHOD of the server in ROLE with PARAMS.
Show its progress in the echo area."
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
            ;; Another server might take the token for a parameter.
            :progress-fn (and (if role
                                  (duet-rpc--tool-p method)
                                (or (eq (duet-rpc--server-state server) 'starting)
                                    (duet-rpc--duet-rpc-server-p server)))
                              report))
      (when reporter (progress-reporter-done reporter)))))

(defun duet-rpc--format-value (value &optional pretty)
  "Return VALUE as text: a string as it is, all else as JSON.
PRETTY means with line breaks."
  (if (stringp value) value (duet-rpc--encode-json value pretty)))

(defun duet-rpc--truncate (text)
  "Return TEXT, or the beginning of it if the echo area would take long."
  (if (<= (length text) 2000)
      text
    (format "%s... (2000 of %d characters; M-x duet-rpc-call shows all)"
            (substring text 0 2000) (length text))))

(defconst duet-rpc--large-result 500000
  "So many characters of a result are too many for a mode or line breaks.")

(defun duet-rpc--encode-json (value pretty)
  "Return VALUE as JSON; PRETTY means with line breaks, unless it is huge."
  ;; Emacs has two encoders: a fast one, which refuses large integers and
  ;; more, and shows 0.1 as 0.10000000000000001; and json.el.
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
        ;; It is nested deeply; Emacs 30 then needs json.el all the same.
        (error (or fast
                   (let ((json-encoding-pretty-print nil)
                         (max-lisp-eval-depth 60000))
                     (json-encode value))))))))

(defun duet-rpc--tool-p (method)
  "Return non-nil if METHOD of the gateway is to call a tool."
  (string-match-p "\\`[^/]+?__\\|\\(\\`\\|/\\)tools/call\\'" (format "%s" method)))

(defun duet-rpc--tool-result (method result)
  "Return what is in RESULT of the tool METHOD: a text, or Lisp of its JSON.
Signal `duet-rpc-error' if the tool has failed."
  (let* ((content (and (listp result) (plist-get result :content)))
         (text (and (vectorp content)
                    (mapconcat #'duet-rpc--content-text content "\n")))
         (structured (and (listp result) (plist-get result :structuredContent))))
    (cond
     ((not (or text structured)) result)
     ((eq t (plist-get result :isError))
      (signal 'duet-rpc-error
              (list (format "%s: %s" method (if (member text '(nil "")) "failed" text)))))
     ;; Most servers that have it send it as a text too.
     ((and structured
           (or (member text '(nil ""))
               (let ((value (ignore-errors (json-parse-string text))))
                 (or (hash-table-p value) (vectorp value)))))
      structured)
     (t text))))

(defun duet-rpc--content-text (content)
  "Return CONTENT, a part of a tool's result, as text."
  (let ((type (plist-get content :type))
        (resource (plist-get content :resource)))
    (format "%s"
            (cond
             ((equal type "text") (plist-get content :text))
             ((equal type "resource")
              (or (plist-get resource :text) (plist-get resource :uri)))
             ((equal type "resource_link") (plist-get content :uri))
             ;; Pictures and sounds are in base 64.
             (t (format "[%s, %s, %d bytes]" type (plist-get content :mimeType)
                        (/ (* 3 (length (plist-get content :data))) 4)))))))

(defun duet-rpc--show-result (result method &optional plain)
  "Show RESULT, the answer of METHOD, in a buffer.
PLAIN means that it is a text to be shown as it is."
  (let ((directory default-directory))
    (with-current-buffer (get-buffer-create "*duet-rpc result*")
      (let ((inhibit-read-only t))
        (erase-buffer)
        (insert (if plain result (duet-rpc--encode-json result t)) "\n"))
      (goto-char (point-min))
      (cond
       ((> (buffer-size) duet-rpc--large-result)
        ;; It may be one line, which Emacs shows slowly at best.
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
  "Define NAME as a command for METHOD, a string.
ARGS may begin with a docstring.  The rest are keywords:

:params is a plist of what to send.  A value of `region', `buffer' or
`symbol' (the one at point) stands for that text, `prompt' asks for it;
anything else is sent as it is.

:result says what to do with the answer: `message' (if left out),
`insert', `replace' (the text that was sent), `buffer', or a function
that takes it, by its name or as a lambda.  Nothing here needs a quote.

:gateway t means that METHOD is called through the gateway.

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
      (error "%s: :params must be a plist without a quote, such as (:text region)" name))
    (unless (if (consp result)
                (not (eq (car result) 'quote))
              (and (symbolp result) (not (keywordp result))))
      (error "%s: :result must be message, insert, replace, buffer or a function, \
without a quote" name))
    (when (and (eq result 'replace)
               (not (cl-intersection '(region buffer symbol) params)))
      (error "%s: no region, buffer or symbol is sent that could be replaced" name))
    `(defun ,name ()
       ,doc
       (interactive)
       (duet-rpc--run-command
        ,method ',params
        ,(if (symbolp result) `',result result)
        ',(and (plist-get args :gateway) 'gateway)))))

(defun duet-rpc--run-command (method params how role)
  "Call METHOD with PARAMS and HOW of `duet-rpc-define-command'.
ROLE is that of the server to call."
  (unless (or (memq how '(message insert replace buffer)) (functionp how))
    (user-error "%s is no function that could take the result of %s; \
C-h f duet-rpc-define-command tells what :result can be" how method))
  (duet-rpc--with-user-errors
    (when role (duet-rpc--ensure-server role)) ; so that its tools are known
    (let* ((bounds nil)
           (sent
            (cl-loop
             for (key source) on params by #'cddr
             for found = (pcase source
                           ('region
                            (if (use-region-p)
                                (cons (region-beginning) (region-end))
                              (user-error "Mark a region first")))
                           ('buffer (cons (point-min) (point-max)))
                           ('symbol
                            (or (bounds-of-thing-at-point 'symbol)
                                (user-error "There is no symbol at point"))))
             for value = (cond
                          (found
                           (setq bounds found)
                           (buffer-substring-no-properties (car found) (cdr found)))
                          ((eq source 'prompt) (duet-rpc--read-param-named method key))
                          (t source))
             unless (eq value 'omit) append (list key value))))
      (duet-rpc--call-and-deliver method sent how (and (eq how 'replace) bounds) role))))

(defun duet-rpc--read-param-named (method key)
  "Ask for the parameter KEY of METHOD."
  (let ((name (substring (symbol-name key) 1)))
    (duet-rpc--read-param
     (or (cl-find name (plist-get (duet-rpc--find-description method) :params)
                  :test #'equal :key (lambda (each) (plist-get each :name)))
         (list :name name :required t :schema '(:type "string"))))))

;;;###autoload
(defun duet-rpc-generate-wrappers (file prefix &optional ask)
  "Write to FILE a function for each method that the server describes.
If the gateway runs, write one for each tool behind it too.  Their names
begin with PREFIX.  Load the file with `require'.

ASK, which is t if called by a person, means to ask before a file is
overwritten."
  (interactive
   (list (read-file-name (format-prompt "Write functions to" "duet-methods.el")
                         nil (expand-file-name "duet-methods.el"))
         (read-string "Prefix of their names: " "duet")
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
                ";; Written by M-x duet-rpc-generate-wrappers.  Do not edit it;\n"
                ";; write it again.\n\n"
                ";;; Code:\n\n(require 'duet-rpc)\n")
        (dolist (method methods)
          (let ((name (concat prefix "-" (duet-rpc--lisp-name (plist-get method :name)))))
            (while (member name names)
              (setq name (concat name "-2")))
            (push name names)
            (insert "\n" (duet-rpc--wrapper name method))))
        (insert (format "\n(provide '%s)\n;;; %s.el ends here\n" feature feature))
        (let ((coding-system-for-write 'utf-8-unix))
          (write-region nil nil file nil nil nil ask)))
      (message "Wrote %d functions to %s" (length names) file))))

(defun duet-rpc--lisp-name (name)
  "Return NAME, such as text.wordCount, as Lisp writes it: text-word-count."
  (let ((case-fold-search nil))
    (downcase
     (string-trim
      (replace-regexp-in-string
       "[^[:alnum:]]+" "-"
       (replace-regexp-in-string "\\([[:lower:][:digit:]]\\)\\([[:upper:]]\\)"
                                 "\\1-\\2" name))
      "-" "-"))))

(defun duet-rpc--wrapper (name description)
  "Return the text of a function NAME for the method in DESCRIPTION."
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
  "Return an alist of PARAMS and the names of their arguments in Lisp."
  (let (names)
    (dolist (param params (nreverse names))
      (let ((name (duet-rpc--lisp-name (plist-get param :name))))
        ;; No argument may have the name of a variable, such as `fill-column'.
        (when (or (equal name "") (special-variable-p (intern name)))
          (setq name (concat "the-" name)))
        (while (rassoc name names)
          (setq name (concat name "-2")))
        (push (cons param name) names)))))

(defun duet-rpc--wrapper-doc (description argument)
  "Return a docstring, as Lisp source, for the method in DESCRIPTION.
ARGUMENT returns the name of a parameter's argument."
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
    ;; Nothing in it is a key or a quotation to Emacs.
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
  "The keys in the list of methods.")

(define-derived-mode duet-rpc-methods-mode tabulated-list-mode "duet-rpc"
  "A list of the server's methods.

\\{duet-rpc-methods-mode-map}"
  (setq tabulated-list-format [("Method" 24 t) ("Parameters" 24 t) ("What it does" 0 t)])
  (tabulated-list-init-header)
  (add-hook 'tabulated-list-revert-hook #'duet-rpc--refresh-methods nil t))

(defun duet-rpc--refresh-methods ()
  "Ask the server for its methods and put them in the list."
  (setq tabulated-list-entries
        (mapcar (lambda (method)
                  (list method (vector (plist-get method :name)
                                       (duet-rpc--signature method)
                                       (or (plist-get method :summary) ""))))
                (duet-rpc--with-user-errors (duet-rpc--methods)))))

;;;###autoload
(defun duet-rpc-list-methods ()
  "List the methods of this buffer's host.
If the gateway runs, its methods and the tools behind it stand there too.
In the list, \\<duet-rpc-methods-mode-map>\\[duet-rpc-methods-call] calls \
a method, \\[duet-rpc-methods-describe] describes it and
\\[duet-rpc-methods-find-source] goes to its Python source."
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
  "Return the description of the method in this line."
  (or (tabulated-list-get-id) (user-error "There is no method in this line")))

(defun duet-rpc-methods-call ()
  "Call the method in this line."
  (interactive nil duet-rpc-methods-mode)
  (let ((method (duet-rpc--method-at-point)))
    (duet-rpc-call (plist-get method :name) (duet-rpc--read-params method)
                   nil (plist-get method :role))))

(defun duet-rpc-methods-describe ()
  "Describe the method in this line."
  (interactive nil duet-rpc-methods-mode)
  (duet-rpc--describe (duet-rpc--method-at-point)))

(defun duet-rpc-methods-find-source ()
  "Go to the Python source of the method in this line."
  (interactive nil duet-rpc-methods-mode)
  (duet-rpc--find-source (duet-rpc--method-at-point)))

;;;###autoload
(defun duet-rpc-describe-method (name)
  "Describe the method NAME."
  (interactive (list (duet-rpc--with-user-errors
                       (plist-get (duet-rpc--read-method "Describe: " (duet-rpc--methods))
                                  :name))))
  (duet-rpc--describe (or (duet-rpc--with-user-errors (duet-rpc--find-description name))
                          (user-error "The server does not describe %s" name))))

(defun duet-rpc--describe (method)
  "Show the description METHOD in the help buffer."
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
  "Go to the source of METHOD, a description."
  (let* ((source (or (plist-get method :x-source)
                     (user-error "The server does not say where %s is defined"
                                 (plist-get method :name))))
         (file (concat (file-remote-p default-directory) (plist-get source :file))))
    (unless (file-readable-p file)
      (user-error "%s is defined in %s, which cannot be read from here"
                  (plist-get method :name) file))
    (find-file-other-window file)
    (goto-char (point-min))
    (forward-line (1- (plist-get source :line)))))

;;;###autoload
(defun duet-rpc-show-log (&optional role)
  "Show what the daemon of this buffer's host has logged.
With a prefix argument, or if ROLE is `gateway', show the gateway's log."
  (interactive (list (and current-prefix-arg 'gateway)))
  (pop-to-buffer (duet-rpc--log-buffer (duet-rpc--server role)))
  (goto-char (point-max)))

;;;###autoload
(defun duet-rpc-set-log-level (level &optional role)
  "Have the daemon log from LEVEL on: debug, info, warn or error.
With a prefix argument, or if ROLE is `gateway', have the gateway do it."
  (interactive (list (completing-read "Log level: " '("debug" "info" "warn" "error")
                                      nil t)
                     (and current-prefix-arg 'gateway)))
  (duet-rpc--with-user-errors
    (let ((server (duet-rpc--ensure-server role)))
      (duet-rpc--request server "setLogLevel" (list :level level))
      (message "%s logs from %s on; %s shows it" (duet-rpc--server-name server)
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
  "The keys in the list of backends.")

(defvar-local duet-rpc--backends nil
  "What gateway/status has said of the backends in this list, by name.")

(defvar-local duet-rpc--refreshing nil
  "Non-nil while this list waits for gateway/status; `again' to ask again.")

(define-derived-mode duet-rpc-backends-mode tabulated-list-mode "duet-rpc backends"
  "A list of the servers behind the gateway.

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
            ("Speaks" 22 t)
            ("Why" 0 t)]
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
  "List the servers behind the gateway of this buffer's host.
Start the gateway if need be.  The list is brought up to date whenever
the state of a server changes, and by \\<duet-rpc-backends-mode-map>\\[revert-buffer].  In it,
\\[duet-rpc-backends-call] calls a tool or a method, \\[duet-rpc-backends-restart] restarts \
a server, \\[duet-rpc-backends-stop] stops it,
\\[duet-rpc-backends-log] shows what it wrote to stderr, and \
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
      (message "There are no backends; name them in ~/.config/duet-rpc/config.toml, \
each as [backends.NAME] with its command, then C-u M-x duet-rpc-restart"))))

(defun duet-rpc--backends-name (server)
  "Return the name of the buffer that lists the backends of SERVER."
  (format "*duet-rpc backends%s*"
          (if (equal (duet-rpc--server-host server) "")
              ""
            (concat " " (duet-rpc--server-host server)))))

(defun duet-rpc--update-backends ()
  "Ask the gateway for its backends and put them in this list."
  (duet-rpc--set-backends
   (duet-rpc--with-user-errors (duet-rpc-gateway-request "gateway/status"))))

(defun duet-rpc--set-backends (status)
  "Put what is in STATUS, the result of gateway/status, in this list."
  (setq duet-rpc--backends
        (mapcar (lambda (each) (cons (plist-get each :name) each))
                (plist-get status :backends)))
  (duet-rpc--make-backend-entries))

(defun duet-rpc--make-backend-entries ()
  "Make the entries of this list."
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
  "Show the entries of this list."
  ;; Where it is shown, its point is the window's.
  (if-let ((window (get-buffer-window nil t)))
      (with-selected-window window (tabulated-list-print t t))
    (tabulated-list-print t t)))

(defun duet-rpc--refresh-backends-soon (server)
  "Bring the list of SERVER's backends up to date soon, if it is on the screen.
One question at a time: news that come meanwhile bring about another."
  (let ((buffer (get-buffer (duet-rpc--backends-name server))))
    (when (and buffer (get-buffer-window buffer t))
      (with-current-buffer buffer
        (if duet-rpc--refreshing
            (setq duet-rpc--refreshing 'again)
          (setq duet-rpc--refreshing t)
          (duet-rpc--run-soon
           (lambda ()
             (duet-rpc--call-in-buffer buffer #'duet-rpc--refresh-backends-async server))))))))

(defun duet-rpc--refresh-backends-async (server)
  "Ask SERVER for its backends without waiting; put them in this list."
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
  "Have the list of backends follow the new state of SERVER, a gateway.
That it is ready is told by the end of its first call."
  (when-let (((memq (duet-rpc--server-state server) '(stopped waiting failed)))
             (buffer (get-buffer (duet-rpc--backends-name server))))
    (with-current-buffer buffer
      (dolist (each duet-rpc--backends)
        (setcdr each `(:state "gone" :pid nil :pending 0 ,@(cdr each))))
      (duet-rpc--make-backend-entries)
      (duet-rpc--print-backends))))

(defun duet-rpc--backend-at-point ()
  "Return the name of the backend in this line."
  (or (tabulated-list-get-id) (user-error "There is no backend in this line")))

(defun duet-rpc-backends-call ()
  "Call a tool or a method of the backend in this line."
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
  "End the backend in this line and start it again."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--request-for-backend "gateway/restart" "%s is starting anew"))

(defun duet-rpc-backends-stop ()
  "End the backend in this line, until the next call to it."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--request-for-backend "gateway/stop" "%s is stopped; the next call starts it"))

(defun duet-rpc--request-for-backend (method done)
  "Call METHOD of the gateway for the backend in this line; then say DONE."
  (let ((name (duet-rpc--backend-at-point)))
    (duet-rpc--with-user-errors
      (duet-rpc-gateway-request method (list :backend name)))
    (message done name)))

(defun duet-rpc-backends-log ()
  "Show the last lines that the backend in this line wrote to stderr."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--show-backend-stderr (duet-rpc--backend-at-point)))

(defun duet-rpc--show-backend-stderr (name)
  "Show the last lines that the backend NAME wrote to stderr."
  (let ((lines (plist-get (duet-rpc--with-user-errors
                            (duet-rpc-gateway-request "gateway/log" (list :backend name)))
                          :lines))
        (directory default-directory))
    (pop-to-buffer (format "*duet-rpc stderr of %s*" name))
    (special-mode)
    (setq default-directory directory)
    (setq-local revert-buffer-function (lambda (&rest _) (duet-rpc--show-backend-stderr name)))
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert (if (= 0 (length lines))
                  (format "%s has written nothing to stderr.\n" name)
                (mapconcat (lambda (line) (concat line "\n")) lines ""))))
    (set-buffer-modified-p nil)))

(defun duet-rpc-backends-gateway-log ()
  "Show what the gateway has logged; all backends' stderr is in it."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc-show-log 'gateway))


;;; The mode line and the menu

(defun duet-rpc--update-mode-line ()
  "Have the mode lines show the state anew."
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
        ;; That it is ready is no news.
        ,@(and gateway (if (equal gateway "ready") '("+gw") (list "+gw:" gateway)))))))

(defun duet-rpc--mode-line-state (host role)
  "Return the state of HOST's server in ROLE, or nil if it is stopped."
  (when-let ((server (gethash (cons host role) duet-rpc--servers)))
    (let* ((state (duet-rpc--server-state server))
           (busy (hash-table-count (duet-rpc--server-pending server)))
           (text (if (and (eq state 'ready) (> busy 0))
                     (format "busy %d" busy)
                   (symbol-name state))))
      (unless (eq state 'stopped)
        (propertize text
                    'face (and (memq state '(failed waiting)) 'error)
                    'help-echo (or (duet-rpc--server-reason server)
                                   (format "The state of the %s"
                                           (or role 'daemon))))))))

;;;###autoload
(define-minor-mode duet-rpc-mode-line-mode
  "Show the state of the daemon in the mode line.
It is starting, ready, busy with a number of calls, stopping, waiting
for a restart, or failed.  If the gateway runs, +gw follows, with its
state unless that is ready."
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
    (user-error "There is no transient.el; all commands begin with M-x duet-rpc-"))
  (unless (fboundp 'duet-rpc--menu)
    ;; Not at the top level, because transient.el takes long to load.
    (transient-define-prefix duet-rpc--menu ()
      "All commands of duet-rpc."
      [["Call"
        ("c" "a method" duet-rpc-call)
        ("a" "the same again" duet-rpc-call-again)]
       ["Methods"
        ("l" "list" duet-rpc-list-methods)
        ("d" "describe" duet-rpc-describe-method)
        ("w" "write functions" duet-rpc-generate-wrappers)]
       ["Daemon"
        ("s" "start" duet-rpc-start)
        ("r" "restart" duet-rpc-restart)
        ("k" "stop" duet-rpc-stop) ; q is what people leave a menu with
        ("i" "status" duet-rpc-status)]
       ["Other servers"
        ("g" "start gateway" duet-rpc-gateway)
        ("b" "backends" duet-rpc-backends)]
       ["Trouble"
        ("o" "show log" duet-rpc-show-log)
        ("v" "set log level" duet-rpc-set-log-level)
        ("D" "doctor" duet-rpc-doctor)]]))
  (call-interactively 'duet-rpc--menu))


;;; The doctor

;;;###autoload
(defun duet-rpc-doctor ()
  "Show all that a bug report needs, in one buffer.
What takes time is filled in when it is known."
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
            (when-let ((wrong (duet-rpc--invalid-option)))
              (dolist (label '("Program" "Python" "Gateway" "Config"))
                (duet-rpc--doctor-fill label "unknown"))
              (signal 'duet-rpc-error (list wrong)))
            (duet-rpc--doctor-check-program)
            (duet-rpc--doctor-check-gateway (duet-rpc--server 'gateway))
            ;; Reaching another host may take long or ask for a password.
            (unless (or (equal host "") (duet-rpc--running-p server))
              (signal 'duet-rpc-error '("not running; call a method first")))
            (duet-rpc--ensure-server)
            (duet-rpc--doctor-check-daemon server))
        (duet-rpc-error (duet-rpc--doctor-report-failure server (cadr err)))))
    (pop-to-buffer buffer)))

(defun duet-rpc--doctor-fill (label format &rest args)
  "Write FORMAT with ARGS behind LABEL in the doctor's buffer."
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
  "Return the options that are not as they came, a line each."
  (let (lines)
    (mapatoms
     (lambda (symbol)
       (when (and (string-prefix-p "duet-rpc-" (symbol-name symbol))
                  (custom-variable-p symbol)
                  (not (equal (symbol-value symbol)
                              (eval (car (get symbol 'standard-value)) t))))
         (push (format "%s: %S" symbol (symbol-value symbol)) lines))))
    (if lines (string-join (sort lines #'string<) "\n") "all as they came")))

(defun duet-rpc--doctor-check-program ()
  "Find out what this machine has to run."
  (let ((default-directory "~/"))
    (duet-rpc--doctor-fill-from-command "Python" (list duet-rpc-python "--version")
                                        (concat ", " (executable-find duet-rpc-python)))
    (condition-case err
        (let ((command (duet-rpc--command (duet-rpc--server))))
          (duet-rpc--doctor-fill "Program" "%s"
                                 (mapconcat #'abbreviate-file-name command " "))
          (if (consp duet-rpc-program)
              (duet-rpc--doctor-fill "Config" "unknown")
            (duet-rpc--doctor-fill-from-command "Config" (append (butlast command (length duet-rpc-arguments))
                                                                 '("config")))))
      (duet-rpc-error
       (duet-rpc--doctor-fill "Program" "%s" (cadr err))
       (duet-rpc--doctor-fill "Config" "unknown")))))

(defun duet-rpc--doctor-fill-from-command (label command &optional suffix)
  "Write behind LABEL what COMMAND prints, and SUFFIX."
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
  "Find out how SERVER is; fill that in.
One thing after the other, so that nothing is measured but itself."
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
                              ;; What it loads and logs at its start comes now.
                              (run-with-timer 0.3 nil #'duet-rpc--call-in-buffer
                                              (current-buffer) ping nil)))))
    (duet-rpc--doctor-fill "Daemon" "%s, %d calls pending, waiting for an answer"
                           (duet-rpc--server-state server)
                           (hash-table-count (duet-rpc--server-pending server)))))

(defun duet-rpc--doctor-check-gateway (server)
  "Find out how SERVER, the gateway, is, without starting it."
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
  "Call FUNCTION with ARGS in BUFFER, unless that is dead."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (apply function args))))

(defun duet-rpc--doctor-report-stderr (server)
  "Fill in the last lines of SERVER's log."
  (let ((tail (duet-rpc--stderr-tail server 10)))
    (duet-rpc--doctor-fill "Last stderr" "%s" (if (equal tail "") "none" tail))))

(defun duet-rpc--doctor-report-failure (server why)
  "Fill in that SERVER does not answer because of WHY."
  (duet-rpc--doctor-fill "Daemon" "%s: %s" (duet-rpc--server-state server) why)
  (duet-rpc--doctor-fill "Ping" "none")
  (duet-rpc--doctor-fill "Methods" "unknown")
  (duet-rpc--doctor-report-stderr server))

(provide 'duet-rpc)
;;; duet-rpc.el ends here
