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

;; Write Emacs commands in Python.  Put this into your init file:
;;
;;   (require 'duet-rpc)
;;   (duet-rpc-mode 1)
;;
;; This file needs the program duet-rpc.pyz beside it; M-x duet-rpc-install
;; installs that.  Then a Python function with @command is a command, once its file is
;; saved in ~/.config/duet-rpc/methods/.  Emacs never waits for it.
;;
;;   M-x duet-rpc-new                   ; a first file
;;   M-x duet-rpc-call                  ; any method, with completion
;;   M-x duet-rpc-cancel                ; what is running
;;   M-x duet-rpc-backends              ; workers and other servers
;;   M-x duet-rpc-doctor                ; when something is wrong
;;   (duet-rpc-eglot 'python-mode "py") ; a language server behind the daemon
;;   (duet-rpc-request "version")       ; => (:version "0.1.0")
;;
;; There is one process a host, the daemon.  It starts on first use and
;; exits with Emacs, and so do the workers and the other servers that it
;; starts.  In a remote buffer, it runs on that buffer's host.  The library
;; is built on jsonrpc.el; results are plists, as there.
;;
;; The file is in this order: options, the public API, transport (the
;; process and its output), requests and replies, what methods ask for,
;; failed methods, calling and delivering results, commands in Lisp and in
;; Python, tools for AI clients, lists, eglot, installing, and the doctor.

;;; Code:

;; An init file loads this, so it loads little itself.  Loading jsonrpc.el
;; takes longer than all the rest; it is loaded with the first process.
(require 'cl-lib)
(require 'filenotify)
(require 'subr-x)
(require 'tabulated-list)
(eval-when-compile (require 'jsonrpc))

(declare-function diff-mode "diff-mode" ())
(declare-function eieio-defclass-internal "eieio-core" (cname superclasses slots options))
(declare-function eieio-make-child-predicate "eieio-core" (class))
(declare-function eieio-make-class-predicate "eieio-core" (class))
(declare-function eieio-oset "eieio-core" (obj slot value))
(declare-function make-instance "eieio" (class &rest initargs))
(declare-function slot-value "eieio" (object slot))
(declare-function slot-exists-p "eieio" (object-or-class slot))
(declare-function duet-rpc--connection--eieio-childp nil (object))
(declare-function duet-rpc--eglot-server--eieio-childp nil (object))
(declare-function find-library-name "find-func" (library))
(declare-function help-setup-xref "help-mode" (item interactive-p))
(declare-function js-json-mode "js" ())
(declare-function json-encode "json" (object))
(declare-function json-read "json" ())
(declare-function jsonrpc-async-request "jsonrpc" (connection method params &rest args))
(declare-function jsonrpc-error "jsonrpc" (&rest args))
(declare-function jsonrpc-notify "jsonrpc" (connection method params))
(declare-function jsonrpc-stderr-buffer "jsonrpc" (conn))
(declare-function jsonrpc-connection-receive "jsonrpc" (connection message))
(declare-function jsonrpc-running-p "jsonrpc" (conn) t)
(declare-function jsonrpc--process "jsonrpc" (conn) t)
(declare-function jsonrpc-connection-send "jsonrpc" (connection &rest args) t)
(declare-function lm-header "lisp-mnt" (header))

(defvar eglot-server-programs)
(defvar json-array-type)
(defvar json-encoding-pretty-print)
(defvar json-false)
(defvar json-null)
(defvar json-object-type)

(defgroup duet-rpc nil
  "Emacs commands written in Python."
  :group 'comm
  :link '(url-link "https://github.com/duet-rpc/duet-rpc"))

(defcustom duet-rpc-program nil
  "Program to run.
If nil, use `duet-rpc.pyz' beside this library, or another place where
\\[duet-rpc-install] puts it, or else `duet-rpc' on variable `exec-path'.
A string is a file name, or the name of a command on variable `exec-path'.
A list of strings is a complete command, run as it is, without
`duet-rpc-arguments'."
  :type '(choice (const :tag "Search for it" nil)
                 (file :tag "File")
                 (repeat :tag "Complete command" string)))

(defcustom duet-rpc-python "python3"
  "Python interpreter that runs `duet-rpc.pyz'."
  :type 'string)

(defcustom duet-rpc-arguments '("rpc")
  "Command-line arguments for the program."
  :type '(repeat string))

(defcustom duet-rpc-debug t
  "Whether a method that fails says why and where.
If t, start the daemon on this machine with the argument \"--debug\": the
error then has the exception's text and traceback, which may contain
secrets that the method was given.  If `everywhere', do the same on other
hosts.  If nil, only the daemon's log says where a method failed.

This has no effect if `duet-rpc-program' is a complete command, or the
first of `duet-rpc-arguments' is not \"rpc\"."
  :type '(choice (const :tag "On this machine" t)
                 (const :tag "On all hosts" everywhere)
                 (const :tag "Nowhere" nil)))

(defcustom duet-rpc-directory nil
  "Working directory of the daemon.
If nil, use your home directory."
  :type '(choice (const :tag "Home directory" nil) directory))

(defcustom duet-rpc-timeout 30
  "Number of seconds that Emacs waits for a reply.
A method that reports progress may take longer: the time is counted from
its last progress report.

A command for which Emacs does not wait may take as long as it likes;
\\[duet-rpc-cancel] ends it."
  :type 'number)

(defcustom duet-rpc-trusted-hosts nil
  "Other hosts whose methods may run Lisp in this Emacs, by `ctx.emacs'.
Each is the beginning of a remote file name, such as \"/ssh:build:\".
Methods on this machine may always do so.  Methods on any host may ask
you questions."
  :type '(repeat string))

(defcustom duet-rpc-events-size 0
  "Number of characters to keep in the events buffer, or 0 to keep none.
Logging events makes large replies several times slower."
  :type 'natnum)

(defconst duet-rpc--version "0.1.0"
  "Version of this library.")

(defconst duet-rpc--file (or load-file-name buffer-file-name)
  "File this library was loaded from.")

(define-error 'duet-rpc-error "duet-rpc")
;; It is a `jsonrpc-error', too, which is defined only when jsonrpc.el is loaded.
(put 'duet-rpc-error 'error-conditions '(duet-rpc-error jsonrpc-error error))
(define-error 'duet-rpc-timeout "duet-rpc" 'duet-rpc-error)
(define-error 'duet-rpc-program-not-found "duet-rpc" 'duet-rpc-error)
(define-error 'duet-rpc-gone "Gone")

(cl-defstruct (duet-rpc--server (:constructor duet-rpc--make-server)
                                (:copier nil))
  "The daemon of one host, across all its processes."
  host                       ; as `file-remote-p' returns it; "" is this machine
  name                       ; of its process and its buffers
  (state 'stopped)           ; or starting, ready, stopping, waiting, failed
  connection process
  (pending (make-hash-table)) ; calls without a reply yet, by token
  start-time                 ; of the current process
  (quick-exits 0)            ; how many processes in a row crashed soon after start
  deadline-timer             ; (TIME . TIMER) for the next deadline of a call
  restart-timer              ; starts the next process after a crash
  info                       ; the result of `initialize'
  methods                    ; descriptions of its methods, as last requested
  backends                   ; alist (NAME . STATUS) of its workers and other
                             ; servers, as gateway/stateChanged had them
  eglot                      ; alist (NAME . CONNECTION): those of eglot to backends
  turns                      ; alist (QUEUE . TIME): when the last call in it ended
  (incoming (make-hash-table :test #'equal)) ; requests that Emacs is answering, by id
  (handles (make-hash-table)) ; Lisp objects that Python has: (OBJECT . COUNT) by id
  (handle-ids (make-hash-table :test #'eq)) ; and their ids
  exact-results              ; alist (ID . RESULT) of results in which {} is not nil
  reason                     ; why it is not running, for a person to read
  stderr-start               ; where the current process's stderr begins in the log
  call-start)                ; where it was when the first of the pending calls was sent

(defvar duet-rpc--servers (make-hash-table :test #'equal)
  "Hash table of servers by host.")

(cl-defstruct (duet-rpc--call (:constructor duet-rpc--make-call)
                              (:copier nil))
  "One request, from the time it is sent until it has its outcome."
  server method token id
  buffer                     ; where to run its function; `any', or t for at once
  origin frame               ; the buffer and the frame in which it was made
  during                     ; id of the request that Emacs makes it to answer
  timeout                    ; in seconds, or `none'
  deadline                   ; when it times out, if ever
  label                      ; name of the command it was made for, if any; the
                             ; mode line shows it, with its progress
  (start-time (float-time))
  progress                   ; how much of it is done, as text
  disarm                     ; function after which C-g no longer cancels it
  cancel-fn                  ; called when it is cancelled or times out
  exact-result               ; the result, but with a hash table for {}
  success-fn error-fn timeout-fn progress-fn
  stream-fn                  ; called with each part of the result as it comes
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
     (duet-rpc-error (duet-rpc--signal-user-error err))))


;;; Calling methods

;;;###autoload
(cl-defun duet-rpc-request (method &optional params &key timeout)
  "Call METHOD with PARAMS, wait for the result and return it.
METHOD is a string or a symbol: the name of a method of yours, or
NAME/method for one of the backend NAME, NAME__tool for one of its tools.
PARAMS is a plist, a vector or nil.  The result is as in `jsonrpc-request':
objects are plists, arrays are vectors, null is nil, false is
`:json-false'.  That of a tool is as its server sent it, with `:content'
and so on, even if `:isError' in it says that the tool failed.

Wait at most TIMEOUT seconds (default `duet-rpc-timeout').
\\[keyboard-quit] cancels the call on the server as well.

If the call fails, signal `duet-rpc-error' with data (TEXT CODE DATA);
if it times out, signal `duet-rpc-timeout', which inherits from it.
DATA has no traceback, which would be part of every message about the
error; \\[duet-rpc-show-traceback] shows it."
  (duet-rpc--request (duet-rpc--ensure-server) method params :timeout timeout))

;;;###autoload
(cl-defun duet-rpc-async-request (method params &key success-fn error-fn
                                         timeout-fn timeout progress-fn
                                         stream-fn)
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
plist.  STREAM-FN, if non-nil, is called with each part of the result of a
method that streams it: a string, or a vector of other values.  The result
is then nil.

Return an object to pass to `duet-rpc-cancel'.  Signal `duet-rpc-error'
if the daemon cannot be started or the request cannot be sent."
  (duet-rpc--async-request (duet-rpc--ensure-server) method params
                           :success-fn (or success-fn #'ignore)
                           :error-fn error-fn :timeout-fn timeout-fn
                           :timeout timeout :progress-fn progress-fn
                           :stream-fn stream-fn))

;;;###autoload
(defun duet-rpc-notify (method &optional params)
  "Send the notification METHOD with PARAMS; there is no reply.
METHOD and PARAMS are as in `duet-rpc-request'."
  (duet-rpc--notify (duet-rpc--ensure-server) method params))

;;;###autoload
(defun duet-rpc-cancel (call)
  "Cancel CALL, an object that `duet-rpc-async-request' returned.
None of its functions will be called.

Interactively, cancel the command that is running; if there are several,
prompt for one, the newest by default."
  (interactive (list (duet-rpc--read-running-call)))
  (when (duet-rpc--finish-call call '(cancelled))
    (duet-rpc--send-cancel call)
    (when (duet-rpc--call-label call)
      (message "%s cancelled" (duet-rpc--call-label call)))))

(defun duet-rpc-error-code (err)
  "Return the JSON-RPC code of ERR, a `duet-rpc-error', or nil."
  (nth 2 err))

(defun duet-rpc-error-data (err)
  "Return the JSON-RPC data of ERR, a `duet-rpc-error', or nil."
  (nth 3 err))


;;; Starting and stopping

;;;###autoload
(defun duet-rpc-stop (&optional interactive)
  "Stop the daemon on this buffer's host.
Ask it to shut down, and kill it if it has not exited after two seconds.
If INTERACTIVE is non-nil, as it is interactively, show a message."
  ;; Not `called-interactively-p', which is nil in a transient.el menu.
  (interactive (list t))
  (let ((server (duet-rpc--server)))
    (duet-rpc--stop server)
    (when interactive
      (message "%s stopped; the next call starts it again"
               (duet-rpc--server-name server)))))

;;;###autoload
(defun duet-rpc-restart (&optional interactive)
  "Start the daemon on this buffer's host; stop it first if it is running.
You rarely need this: every call starts the daemon if necessary.  Use it
after you have changed an option, or after the daemon has crashed so often
that it is not restarted automatically.  INTERACTIVE is as in
`duet-rpc-stop'."
  (interactive (list t))
  (let ((server (duet-rpc--server)))
    (duet-rpc--with-user-errors (duet-rpc--restart server))
    (when interactive
      (message "%s is starting" (duet-rpc--server-name server)))))

;;;###autoload
(defun duet-rpc-status ()
  "Return the state of the daemon on this buffer's host, a symbol.
It is `stopped', `starting', `ready', `stopping', `waiting' (to be
restarted after a crash) or `failed'.  \\[duet-rpc-doctor] shows it."
  (duet-rpc--server-state (duet-rpc--server)))


;;; What the daemon sends

(defvar duet-rpc--handlers (make-hash-table :test #'equal)
  "Hash table of the functions set by `duet-rpc-handle', by topic.")

;;;###autoload
(defun duet-rpc-handle (topic function)
  "Make FUNCTION handle what Python or a server sends under TOPIC.
TOPIC is that of `duet_rpc.notify' in Python; or NAME/method for a request
or a notification that the backend NAME sends as method; or
gateway/stateChanged.  FUNCTION is called with the params, from the top
level, so that it may prompt the user or call methods, and with a
`default-directory' on the daemon's host.

The reply to a request is the value that FUNCTION returns.  If FUNCTION
signals an error, the reply is an error; use `jsonrpc-error' to choose its
code.  A request that no function handles is refused immediately.

Each TOPIC has one function, the last one set.  If FUNCTION is nil,
remove it."
  (if function
      (puthash topic function duet-rpc--handlers)
    (remhash topic duet-rpc--handlers)))


;;; Transport: the program to run

(defun duet-rpc--program-candidates ()
  "Return an alist (FILE . DESCRIPTION) of where the program may be.
Search the path for a FILE that has no directory."
  (let* ((el (and duet-rpc--file
                  (concat (file-name-sans-extension duet-rpc--file) ".el")))
         (beside (lambda (file &optional directory)
                   (expand-file-name (concat directory "duet-rpc.pyz")
                                     (file-name-directory file)))))
    (delete-dups
     (cond
      ((null duet-rpc-program)
       `(,@(and el
                `((,(funcall beside el) . "beside duet-rpc.el")
                  ;; Some package managers build in a directory of links.
                  ,@(unless (equal el (file-truename el))
                      `((,(funcall beside (file-truename el))
                         . "beside the file that duet-rpc.el links to")))
                  (,(funcall beside (file-truename el) "../dist/")
                   . "built from the sources that duet-rpc.el is part of")))
         (,(expand-file-name (locate-user-emacs-file "duet-rpc.pyz"))
          . "in your Emacs directory")
         ("duet-rpc" . "on the path")
         (,(expand-file-name "~/.local/bin/duet-rpc") . "where uv and pipx install")))
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
  "Signal `duet-rpc-program-not-found', with where SERVER's program was sought."
  (let ((host (duet-rpc--server-host server)))
    (signal
     'duet-rpc-program-not-found
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
       (if duet-rpc-program
           "Set `duet-rpc-program' to the program's file, or to nil to search for it"
         "M-x duet-rpc-install installs it"))))))

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
       (duet-rpc-debug ,(memq duet-rpc-debug '(nil t everywhere)) "nil, t or everywhere")
       (duet-rpc-arguments ,(strings-p duet-rpc-arguments) "a list of strings")
       (duet-rpc-directory ,(or (null duet-rpc-directory) (stringp duet-rpc-directory))
                           "nil or a string")
       (duet-rpc-timeout ,(numberp duet-rpc-timeout) "a number")
       (duet-rpc-events-size ,(natnump duet-rpc-events-size) "a number"))
     unless valid
     return (format "The option `%s' is %S; it must be %s"
                    option (symbol-value option) expected))))

(defun duet-rpc--command (server)
  "Return the command line for SERVER, as a list of strings."
  (if (consp duet-rpc-program)
      duet-rpc-program
    (append (duet-rpc--program-command server) duet-rpc-arguments
            (and (duet-rpc--debug-p server) '("--debug")))))

(defun duet-rpc--command-for-host (server)
  "Return the command line for SERVER, wrapped as its host needs it."
  (let ((command (duet-rpc--command server)))
    (if (equal (duet-rpc--server-host server) "")
        command
      ;; TRAMP in Emacs 28.2 hangs if the terminal is not in raw mode.
      (list "sh" "-c" (concat "stty raw -echo > /dev/null 2>&1; "
                              "printf 'duet-rpc %s\\n' ready; exec "
                              (mapconcat #'shell-quote-argument command " "))))))

(defun duet-rpc--program-command (server)
  "Return the command line of SERVER's program, without arguments for it."
  (when (consp duet-rpc-program)
    (signal 'duet-rpc-error
            '("`duet-rpc-program' is a complete command for the daemon, so it \
cannot be run for anything else; set `duet-rpc-program' to the program's file")))
  (let ((program (duet-rpc--find-program server)))
    `(,@(and (duet-rpc--python-program-p program) (list duet-rpc-python))
      ,program)))

(defun duet-rpc--debug-p (server)
  "Return non-nil if \"--debug\" is to be added to SERVER's arguments."
  (and (if (equal (duet-rpc--server-host server) "")
           duet-rpc-debug
         (eq duet-rpc-debug 'everywhere))
       (equal (car duet-rpc-arguments) "rpc") ; it may be another server
       (not (member "--debug" duet-rpc-arguments))))

(defun duet-rpc--run-program (server &rest arguments)
  "Run SERVER's program with ARGUMENTS and return its stdout.
Signal `duet-rpc-error' with its stderr if it fails."
  (duet-rpc--check-options)
  (let ((errors (make-temp-file "duet-rpc")))
    (unwind-protect
        (with-temp-buffer
          (setq default-directory (duet-rpc--directory server))
          (let* ((command (append (duet-rpc--program-command server) arguments))
                 (coding-system-for-read 'utf-8-unix)
                 (code (condition-case err
                           (apply #'process-file (car command) nil (list t errors) nil
                                  (cdr command))
                         (file-error (error-message-string err)))))
            (unless (equal code 0)
              (erase-buffer)
              (insert-file-contents errors)
              (signal 'duet-rpc-error
                      (list (format "%s: %s" (string-join command " ")
                                    (if (= 0 (buffer-size))
                                        (if (stringp code) code
                                          (format "failed with code %s" code))
                                      (string-trim (buffer-string)))))))
            (string-trim (buffer-string))))
      (delete-file errors))))

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
      (duet-rpc--copy-file file target))
    (file-local-name target)))

(defun duet-rpc--copy-file (file target)
  "Copy FILE to TARGET, which is never there in part.
Two Emacsen may be copying at once."
  (let ((part (make-temp-name (concat target "."))))
    (unwind-protect
        (progn
          (copy-file file part)
          (rename-file part target t))
      (when (file-exists-p part)
        (delete-file part)))))


;;; Transport: the process

(defconst duet-rpc--quick-exit-seconds 10
  "A crash within this many seconds of the start counts as a quick exit.")

(defconst duet-rpc--max-quick-exits 5
  "Number of quick exits in a row after which a server is not restarted.")

(defun duet-rpc--server ()
  "Return the daemon of the current buffer's host, running or not."
  (let ((host (substring-no-properties (or (file-remote-p default-directory) ""))))
    (or (gethash host duet-rpc--servers)
        (puthash host
                 (duet-rpc--make-server
                  :host host
                  :name (concat "duet-rpc" (unless (equal host "") (concat " " host))))
                 duet-rpc--servers))))

(defun duet-rpc--local-server ()
  "Return the daemon of this machine, running or not."
  (let ((default-directory "/"))
    (duet-rpc--server)))

(defun duet-rpc--ensure-server ()
  "Return the daemon of the current buffer's host; start it if necessary."
  (let ((server (duet-rpc--server)))
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
          (duet-rpc--sentinel server #'ignore process nil)))))

(defun duet-rpc--server-version (server)
  "Return the version that SERVER reported, or nil."
  (plist-get (plist-get (duet-rpc--server-info server) :serverInfo) :version))

(defun duet-rpc--set-state (server state)
  "Set SERVER's state to STATE and update what displays it."
  (setf (duet-rpc--server-state server) state)
  (duet-rpc--mark-backends-gone server))

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

(defun duet-rpc--restart (server)
  "Start SERVER's process; stop it first if it is running."
  (duet-rpc--stop server)
  (setf (duet-rpc--server-quick-exits server) 0)
  (duet-rpc--launch server))

(defun duet-rpc-unload-function ()
  "Stop all servers and clear the mode line, for `unload-feature'."
  (duet-rpc-mode -1)
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

(defun duet-rpc--host-directory (server)
  "Return a directory on SERVER's host, for buffers about SERVER."
  (let ((host (duet-rpc--server-host server)))
    (if (equal host "") (expand-file-name "~/") (concat host "/"))))

(defun duet-rpc--launch-process (server)
  "Start SERVER's process in the current directory."
  (duet-rpc--load-jsonrpc)
  (let* ((command (duet-rpc--command-for-host server))
         ;; A quit in the middle would leave a process that this library
         ;; does not know about.  But connecting to another host may take
         ;; long, and must remain possible to quit.
         (inhibit-quit (or inhibit-quit (equal (duet-rpc--server-host server) "")))
         (connection (duet-rpc--connect server command))
         (process (jsonrpc--process connection)))
    (setf (duet-rpc--server-connection server) connection
          (duet-rpc--server-process server) process
          (duet-rpc--server-start-time server) (float-time)
          (duet-rpc--server-info server) nil
          (duet-rpc--server-backends server) nil
          (duet-rpc--server-turns server) nil
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

(defun duet-rpc--connect (server command)
  "Run COMMAND as SERVER's process and return a connection to it.
Signal `duet-rpc-error' if COMMAND cannot be run."
  (let ((name (duet-rpc--server-name server)))
    (condition-case err
        (apply #'make-instance 'duet-rpc--connection
               :name name
               :process (lambda () (duet-rpc--make-process server command))
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
       (let ((kill-buffer-query-functions nil)
             (stderr (get-buffer (format "*%s stderr*" name))))
         (when stderr (kill-buffer stderr))) ; and its process
       (signal 'duet-rpc-error
               (list (format "Cannot start %s: %s.  Set `duet-rpc-python' \
to the Python to use, or `duet-rpc-program' to the program"
                             (car command) (error-message-string err))))))))

(defun duet-rpc--make-process (server command)
  "Run COMMAND in the current directory and return its process.
On another host, wait until it can be written to.  SERVER gives the
process its name."
  (let* ((name (duet-rpc--server-name server))
         (process
          (let ((process-adaptive-read-buffering nil))
            (make-process
             :name name :command command :connection-type 'pipe
             :coding 'utf-8-emacs-unix :noquery t :file-handler t
             ;; jsonrpc.el expects this name.
             :stderr (get-buffer-create (format "*%s stderr*" name))))))
    (unless (equal (duet-rpc--server-host server) "")
      ;; TRAMP's sentinel cleans up, and deletes the end of stderr
      ;; with it.  Run it later, in `duet-rpc--handle-exit'.
      (process-put process 'duet-rpc-tramp-sentinel (process-sentinel process))
      (set-process-sentinel process #'ignore)
      (duet-rpc--await-ready process))
    process))

(defun duet-rpc--handle-initialize (server info)
  "Record INFO, SERVER's result of `initialize' or nil; SERVER is ready.
Any JSON-RPC server will do, but the version of duet-rpc must be
compatible with this library."
  (when (eq (duet-rpc--server-state server) 'starting)
    (setf (duet-rpc--server-info server) (and (listp info) info))
    (duet-rpc--set-state server 'ready)
    (duet-rpc--run-soon (lambda () (duet-rpc--server-is-ready server)))
    (when (duet-rpc--duet-rpc-server-p server)
      (let ((protocol (plist-get info :protocolVersion))
            (version (duet-rpc--server-version server))
            (remedy "M-x duet-rpc-install installs the one that fits; \
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
         ;; Nothing about earlier calls.
         (tail (duet-rpc--stderr-tail server 5 (duet-rpc--server-call-start server)))
         (how (duet-rpc--describe-exit code signal tail))
         (stderr (if (equal tail "")
                     ""
                   (format ".  End of its stderr (M-x duet-rpc-show-log shows all):\n%s"
                           tail))))
    (duet-rpc--log server "%s" how)
    (setf (duet-rpc--server-exact-results server) nil)
    (duet-rpc--forget-peer server)
    (mapc (lambda (each) (duet-rpc--close-eglot server (cdr each)))
          (duet-rpc--server-eglot server))
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
      ;; A call that fails shows the end of stderr, so the crash itself
      ;; does not show it again.
      (let ((calls (cl-some #'duet-rpc--call-reports-errors-p
                            (hash-table-values (duet-rpc--server-pending server)))))
        (duet-rpc--fail-pending
         server (format "%s %s before it answered%s" name how stderr))
        (duet-rpc--handle-crash server how stderr calls))))))

(defun duet-rpc--describe-exit (code signal tail)
  "Return how a process has exited and what to do, as in \"exited with code 1\".
CODE is its exit code, or the number of a signal if SIGNAL is non-nil.
TAIL is the end of its stderr."
  (cond (signal (format "was killed by signal %d" code))
        ((string-match-p "Python is too old" tail)
         "needs a newer Python (see `duet-rpc-python')")
        ((string-match-p "unknown option '--debug'" tail)
         "is older than duet-rpc.el; M-x duet-rpc-install installs \
the one that fits (or set `duet-rpc-debug' to nil)")
        ;; Emacs sets this code when it cannot write to the process.
        ((= code 256) "closed its input")
        ((= code 127)
         "exited with code 127, command not found (see `duet-rpc-python')")
        (t (format "exited with code %d" code))))

(defun duet-rpc--call-reports-errors-p (call)
  "Return non-nil if the user is told when CALL fails."
  (or (duet-rpc--call-label call)
      (not (duet-rpc--call-success-fn call))
      (not (duet-rpc--call-error-fn call))))

(defun duet-rpc--handle-crash (server how stderr &optional quietly)
  "Schedule a restart of SERVER, or give up after too many quick exits.
HOW says how its process exited; STDERR is text with the end of stderr.
If QUIETLY is non-nil, do not show that: the user has seen it."
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
fix the cause, then M-x duet-rpc-restart%s" name how exits stderr))
           ;; A restart from a timer must not prompt for a password.
           ((not (equal (duet-rpc--server-host server) ""))
            (format "%s %s; the next call starts it again%s" name how stderr))
           (t (format "%s %s; restarting in %d s%s" name how delay stderr))))
    (message "%s" (if quietly
                      (string-remove-suffix stderr (duet-rpc--server-reason server))
                    (duet-rpc--server-reason server)))
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
    (unless (or (not (plist-member message :result))
                (stringp (plist-get message :result)))
      (duet-rpc--keep-exact-result server (plist-get message :id)))
    message))

(defun duet-rpc--keep-exact-result (server id)
  "Keep the result before point, of SERVER's reply with ID, if it has a {}.
Lisp programs get nil for that, as for null; a person is shown what it is."
  (let ((end (point)))
    (save-excursion
      (goto-char (point-min))
      (when (re-search-forward "{[ \t\r\n]*}" end t)
        (goto-char (point-min))
        (let ((message (ignore-errors
                         (json-parse-buffer :object-type 'hash-table :null-object nil
                                            :false-object :json-false))))
          (when message
            (push (cons id (duet-rpc--plists (gethash "result" message)))
                  (duet-rpc--server-exact-results server))))))))

(defun duet-rpc--plists (value)
  "Return VALUE with plists in place of its hash tables, unless they are empty."
  (cond
   ((vectorp value) (vconcat (mapcar #'duet-rpc--plists value)))
   ((and (hash-table-p value) (< 0 (hash-table-count value)))
    (cl-loop for key being the hash-keys of value using (hash-values each)
             append (list (duet-rpc--keyword key) (duet-rpc--plists each))))
   (t value)))

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
        (let ((value (json-parse-buffer :object-type 'plist :null-object nil
                                        :false-object :json-false)))
          (if (and (< emacs-major-version 29)
                   (save-excursion
                     (re-search-backward "[^[:ascii:]]\\|\\\\u" begin t)))
              (duet-rpc--decode-keys value)
            value))
      (error
       (require 'json)
       (goto-char begin)
       (let ((json-object-type 'plist)
             (json-array-type 'vector)
             (json-null nil)
             (json-false :json-false))
         (json-read))))))

(defun duet-rpc--decode-keys (value)
  "Decode the keys in VALUE, bytes in Emacs 28; return VALUE.
Modify VALUE, which consists of plists and vectors."
  (let ((rest (list value)))
    (while rest
      (let ((each (pop rest)))
        (cond
         ((vectorp each)
          (mapc (lambda (item) (when (or (consp item) (vectorp item)) (push item rest)))
                each))
         ((consp each)
          (while each
            (let ((name (symbol-name (car each))))
              (unless (or (multibyte-string-p name) (string-match-p "\\`[\0-\x7f]*\\'" name))
                (setcar each (intern (decode-coding-string name 'utf-8)))))
            (when (or (consp (cadr each)) (vectorp (cadr each)))
              (push (cadr each) rest))
            (setq each (cddr each))))))))
  value)

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
                (message "duet-rpc: %s; M-x duet-rpc-show-log shows further ones" text)))
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
          (duet-rpc-log-mode)
          (setq default-directory (duet-rpc--host-directory server))
          (current-buffer)))))

(defun duet-rpc--append-log (server text)
  "Append TEXT to SERVER's log, and limit the size of the log."
  (with-current-buffer (duet-rpc--log-buffer server)
    (let* ((inhibit-read-only t)
           (end (point-max))
           (at-end (cl-loop for window in (get-buffer-window-list nil nil t)
                            when (= (window-point window) end) collect window)))
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
    (setf (duet-rpc--server-stderr-start server) (copy-marker (point-max))
          (duet-rpc--server-call-start server) nil))
  (duet-rpc--append-log server (with-current-buffer buffer (buffer-string)))
  (when-let ((stderr (get-buffer-process buffer)))
    (set-process-coding-system stderr 'utf-8-unix 'utf-8-unix)
    (set-process-query-on-exit-flag stderr nil)
    (set-process-sentinel stderr #'ignore)
    (set-process-filter stderr
                        (lambda (_ text) (duet-rpc--append-log server text)))))

(defun duet-rpc--mark-log (server)
  "Remember where SERVER's log ends, as the beginning of a call."
  (with-current-buffer (duet-rpc--log-buffer server)
    (setf (duet-rpc--server-call-start server)
          (set-marker (or (duet-rpc--server-call-start server) (make-marker))
                      (point-max)))))

(defun duet-rpc--stderr-tail (server lines &optional start)
  "Return the last LINES lines of stderr of SERVER's current process.
If START is non-nil, a marker in the log, leave out what is before it."
  (with-current-buffer (duet-rpc--log-buffer server)
    (let* ((begin (or start (duet-rpc--server-stderr-start server)))
           (all (split-string
                 (buffer-substring-no-properties
                  ;; The log buffer may have been killed since.
                  (if (and begin (marker-position begin)) begin (point-min))
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

(defvar duet-rpc--waiting nil
  "Non-nil while Emacs waits for a reply.")

(defvar duet-rpc--queue nil
  "Functions to call from the top level, oldest first.")

(defvar duet-rpc--during nil
  "The id of the request that Emacs is answering.")

(defvar duet-rpc--asking nil
  "Non-nil while the user is being asked a question.")

(defvar duet-rpc--waiting-questions nil
  "Functions that ask a question, the oldest first.")

(defvar duet-rpc-answer-history nil
  "History of answers to questions of methods.")

(defconst duet-rpc--questions
  '((client/ask . duet-rpc--ask)
    (client/choose . duet-rpc--choose)
    (client/confirm . duet-rpc--confirm))
  "Alist of the requests that are questions to the user, and their functions.")

(defconst duet-rpc--client-methods
  `(,@duet-rpc--questions
    (emacs/call . duet-rpc--emacs-call)
    (emacs/eval . duet-rpc--emacs-eval)
    (emacs/buffer . duet-rpc--emacs-buffer))
  "Alist of the requests that the daemon sends, and their functions.")

(cl-defstruct (duet-rpc--incoming-request (:constructor duet-rpc--make-incoming-request)
                                          (:copier nil))
  "A request from the daemon, and the function that will handle it."
  server id method params function
  call                       ; the call that it belongs to, if any
  withdrawn                  ; non-nil if no answer is wanted any more
  tag)                       ; thrown to when it is withdrawn, if it is being answered

(defun duet-rpc--load-jsonrpc ()
  "Load jsonrpc.el, and define this library's class of connections."
  (unless (fboundp 'duet-rpc--connection-p)
    (require 'jsonrpc)
    (duet-rpc--define-connection)))

(defun duet-rpc--define-connection ()
  "Define the class `duet-rpc--connection'."
  (defclass duet-rpc--connection (jsonrpc-process-connection) ()
    :documentation "A jsonrpc.el connection that records the ids of requests.")

  (cl-defmethod jsonrpc-connection-send ((connection duet-rpc--connection)
                                         &rest args)
    "Send ARGS over CONNECTION; record the id, and omit nil params.
  jsonrpc.el would send nil params as null.  If ARGS are a reply whose
  result is a `duet-rpc--incoming-request', handle that later instead."
    (let ((id (plist-get args :id))
          (result (plist-get args :result)))
      (if (duet-rpc--incoming-request-p result)
          (duet-rpc--receive-request connection id result)
        ;; While a request is being sent, a timer may send a notification,
        ;; which has no id, or a reply, whose id is the other side's.
        (when (and id (not (plist-member args :result)) (not (plist-member args :error)))
          (setq duet-rpc--sent-id id))
        (apply #'cl-call-next-method connection
               (if (plist-get args :params)
                   args
                 (cl-loop for (key value) on args by #'cddr
                          unless (eq key :params) append (list key value))))))))

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
      (unless (numberp duet-rpc-timeout)
        (duet-rpc--check-options))
      (setf (duet-rpc--call-timeout call) duet-rpc-timeout))
    (setf (duet-rpc--call-origin call) (current-buffer)
          (duet-rpc--call-frame call) (selected-frame)
          (duet-rpc--call-during call) duet-rpc--during)
    (setq params (duet-rpc--add-meta call params))
    (when (and (= 0 (hash-table-count calls)) (eq (duet-rpc--server-state server) 'ready))
      (duet-rpc--mark-log server))
    (puthash token call calls)
    (unwind-protect
        (duet-rpc--with-send-errors server method
          ;; No timeout here: progress extends it, and jsonrpc.el does not
          ;; know about progress.
          (jsonrpc-async-request
           (duet-rpc--server-connection server) (duet-rpc--method-symbol method) params
           :success-fn (lambda (result)
                         (setf (duet-rpc--call-exact-result call)
                               (duet-rpc--take-exact-result call result))
                         (duet-rpc--finish-call call (list 'result result)))
           :error-fn (lambda (err) (duet-rpc--finish-call call (list 'error err)))
           :timeout-fn #'ignore :timeout nil)
          (setf (duet-rpc--call-id call) duet-rpc--sent-id))
      (unless (duet-rpc--call-id call)
        (duet-rpc--abort-send call duet-rpc--sent-id)))
    (duet-rpc--pending-changed call)
    call))

(defun duet-rpc--add-meta (call params)
  "Return PARAMS of CALL with a member `_meta', which is about CALL."
  (let* ((server (duet-rpc--call-server call))
         (token (duet-rpc--call-token call))
         (meta `(,@(and (duet-rpc--takes-meta-p server (duet-rpc--call-method call))
                        `(:client (:name "emacs" :version ,emacs-version
                                         :can ,(duet-rpc--abilities server)
                                         :call ,token)
                                  ,@(and (duet-rpc--call-during call)
                                         (list :during (duet-rpc--call-during call)))))
                 ,@(and (duet-rpc--call-progress-fn call) (list :progressToken token))
                 ;; The two must differ.
                 ,@(and (duet-rpc--call-stream-fn call)
                        (list :partialResultToken (- token))))))
    (cond
     ((or (null meta) (not (listp params))) params)
     ((plist-member params :_meta)
      (plist-put (copy-sequence params) :_meta (append (plist-get params :_meta) meta)))
     (t `(,@params :_meta ,meta)))))

(defun duet-rpc--takes-meta-p (server method)
  "Return non-nil if METHOD of SERVER may be told about its caller.
Another server might mistake that for a parameter."
  (let ((name (format "%s" method)))
    (and (not (duet-rpc--built-in-p (list :name name))) ; which ask nothing
         (if (duet-rpc--server-info server)
             (duet-rpc--duet-rpc-server-p server)
           ;; It has not said yet what it is.
           (if (consp duet-rpc-program)
               (cl-some (lambda (word) (string-search "duet-rpc" word)) duet-rpc-program)
             (equal (car duet-rpc-arguments) "rpc")))
         (or (not (string-search "/" name))
             (duet-rpc--find-named name (duet-rpc--server-methods server))))))

(defun duet-rpc--async-request (server method params &rest slots)
  "Call METHOD of SERVER with PARAMS, as `duet-rpc-async-request' does.
SLOTS are further slots of the call, `:success-fn' among them."
  (let* ((call (apply #'duet-rpc--send-request server method params
                      `(,@slots :buffer ,(current-buffer))))
         (deadline (duet-rpc--set-deadline call)))
    (when deadline
      (duet-rpc--schedule-deadline-check server deadline))
    call))

(defun duet-rpc--take-exact-result (call result)
  "Return RESULT of CALL, but with a hash table for each {} in it."
  (let* ((server (duet-rpc--call-server call))
         (kept (assoc (duet-rpc--call-id call) (duet-rpc--server-exact-results server))))
    (if (not kept)
        result
      (setf (duet-rpc--server-exact-results server)
            (delq kept (duet-rpc--server-exact-results server)))
      (cdr kept))))

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

(cl-defun duet-rpc--request (server method params &key timeout progress-fn exact)
  "Call METHOD of SERVER with PARAMS, as `duet-rpc-request' does.
TIMEOUT and PROGRESS-FN are as in `duet-rpc-async-request'.  If EXACT is
non-nil, return a hash table for each {} in the result."
  (let ((call (duet-rpc--send-request server method params
                                      :buffer (current-buffer) :timeout timeout
                                      :progress-fn progress-fn)))
    (duet-rpc--wait-for-reply call)
    (pcase (duet-rpc--call-outcome call)
      (`(result ,result) (if exact (duet-rpc--call-exact-result call) result))
      (`(error ,err)
       (duet-rpc--keep-traceback server method err)
       (signal 'duet-rpc-error
               `(,(duet-rpc--format-error method err) ,(plist-get err :code)
                 ,@(when-let ((data (duet-rpc--data-without-traceback err)))
                     (list data)))))
      (`(timeout ,text) (signal 'duet-rpc-timeout (list text)))
      ;; By C-g at a question that it asked.
      ('(cancelled) (signal 'quit nil)))))

(defun duet-rpc--wait-for-reply (call)
  "Wait until CALL has its outcome; cancel it if the wait is interrupted."
  (let ((process (duet-rpc--server-process (duet-rpc--call-server call)))
        (notice nil)
        (begin (float-time)))
    (duet-rpc--set-deadline call)
    (unwind-protect
        ;; In timers and process filters quitting is inhibited, but a
        ;; server that hangs must not hang Emacs there either.
        (let ((inhibit-quit nil)
              (duet-rpc--waiting t)
              ;; What it waits for may depend on any question.
              (duet-rpc--asking nil))
          (duet-rpc--ask-next-soon)
          (while (progn
                   ;; Return often: the reply may be read by a timer that
                   ;; runs in here.
                   (accept-process-output (and (process-live-p process) process) 0.1)
                   (not (duet-rpc--call-outcome call)))
            (unless (< (- (float-time) begin) 0.5)
              (let ((text (duet-rpc--waiting-notice call))
                    (message-log-max nil))
                ;; What else has been shown meanwhile stays.
                (unless (or (equal text notice)
                            (and notice (not (equal notice (current-message)))))
                  (setq notice text)
                  (message "%s" notice))))
            (when (and (duet-rpc--call-deadline call)
                       (> (float-time) (duet-rpc--call-deadline call)))
              (duet-rpc--time-out-call call))))
      ;; A second C-g must not interrupt the cancelling.
      (let ((inhibit-quit t))
        (when (and notice (equal notice (current-message)))
          (message nil))
        (when (duet-rpc--finish-call call '(cancelled))
          (duet-rpc--send-cancel call))))))

(defun duet-rpc--waiting-notice (call)
  "Return a text about the wait for CALL, and for what is before it."
  (format "waiting for %s… (%sC-g cancels)" (duet-rpc--call-method call)
          (let ((other (car (duet-rpc--calls-ahead call)))
                (preparing (duet-rpc--preparing call)))
            (cond (preparing (format "%s; " preparing))
                  ((not other) "")
                  ((eq 'starting (duet-rpc--server-state (duet-rpc--call-server call)))
                   "the server is starting; ")
                  (t (format "%s is running; " (duet-rpc--call-name other)))))))

(defun duet-rpc--call-name (call)
  "Return the name of CALL for the user."
  (or (duet-rpc--call-label call) (duet-rpc--call-method call)))


;; Queues.  A worker runs one method at a time, and so does a daemon that
;; has none.

(defun duet-rpc--router-p (server)
  "Return non-nil if SERVER has workers or other servers behind it."
  (or (duet-rpc--server-backends server)
      (cl-some (lambda (method) (plist-get method :x-worker))
               (duet-rpc--server-methods server))))

(defun duet-rpc--description (call)
  "Return the description of CALL's method, if it is known."
  (duet-rpc--find-named (format "%s" (duet-rpc--call-method call))
                        (duet-rpc--server-methods (duet-rpc--call-server call))))

(defun duet-rpc--queue (call)
  "Return the name of the worker of CALL, which has to wait for earlier ones.
The value t means the daemon itself, nil that CALL does not have to wait
for others."
  (cond
   ((duet-rpc--call-during call) nil)
   ((duet-rpc--router-p (duet-rpc--call-server call))
    (plist-get (duet-rpc--description call) :x-worker))
   (t t)))

(defun duet-rpc--calls-ahead (call)
  "Return the list of what is ahead of CALL in its queue, the oldest first."
  (when-let ((queue (duet-rpc--queue call)))
    (sort (cl-loop for other in (hash-table-values
                                 (duet-rpc--server-pending (duet-rpc--call-server call)))
                   when (and (< (duet-rpc--call-token other) (duet-rpc--call-token call))
                             (equal queue (duet-rpc--queue other)))
                   collect other)
          (lambda (one other)
            (< (duet-rpc--call-token one) (duet-rpc--call-token other))))))

(defun duet-rpc--running-seconds (call)
  "Return for how long CALL, the first in its queue, has been running."
  (- (float-time)
     (max (duet-rpc--call-start-time call)
          (or (alist-get (duet-rpc--queue call)
                         (duet-rpc--server-turns (duet-rpc--call-server call))
                         nil nil #'equal)
              0))))

(defun duet-rpc--end-turn (call)
  "Note that CALL has ended; the next one in its queue begins to run."
  (let ((server (duet-rpc--call-server call)))
    (when (< 0 (hash-table-count (duet-rpc--server-pending server)))
      (when-let ((queue (duet-rpc--queue call)))
        (setf (alist-get queue (duet-rpc--server-turns server) nil nil #'equal)
              (float-time))))))

(defun duet-rpc--preparing (call)
  "Return what CALL's worker does before it is ready, or nil.
While it makes its environment, a call to it does not time out."
  (let ((description (duet-rpc--description call)))
    (cl-loop for (name . status) in (duet-rpc--server-backends
                                     (duet-rpc--call-server call))
             for text = (duet-rpc--preparing-text status)
             when (and text (or (not description)
                                (equal name (plist-get description :x-worker))))
             return text)))

(defun duet-rpc--preparing-text (status)
  "Return what the worker with STATUS does before it is ready, or nil."
  (let ((reason (plist-get status :reason)))
    (and (equal (plist-get status :kind) "worker")
         (equal (plist-get status :state) "starting")
         (stringp reason)
         (not (equal reason ""))
         (format "worker %s: %s" (plist-get status :name) reason))))

(defun duet-rpc--handle-state (server status)
  "Note STATUS, that of a worker or a backend of SERVER."
  (let* ((name (plist-get status :name))
         (text (duet-rpc--preparing-text status))
         (waiting nil))
    (setf (alist-get name (duet-rpc--server-backends server) nil nil #'equal) status)
    (dolist (call (hash-table-values (duet-rpc--server-pending server)))
      (when (equal name (duet-rpc--queue call))
        (when (duet-rpc--call-deadline call)
          (duet-rpc--set-deadline call))
        (when (duet-rpc--call-label call)
          (setq waiting t))))
    (when (and text waiting)
      (duet-rpc--run-soon (lambda () (let ((message-log-max nil)) (message "%s" text)))))
    (duet-rpc--refresh-backends-soon server)
    (unless (member (plist-get status :state) '("starting" "ready"))
      (duet-rpc--close-eglot server (cdr (assoc name (duet-rpc--server-eglot server)))))
    ;; Until then it is not known which method is whose.
    (unless (or (not (equal (plist-get status :kind) "worker"))
                (cl-some (lambda (method) (plist-get method :x-worker))
                         (duet-rpc--server-methods server)))
      (duet-rpc--run-soon (lambda () (duet-rpc--update-methods server))))))


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
    (when (duet-rpc--call-disarm call)
      (funcall (duet-rpc--call-disarm call)))
    (when (and (memq (car outcome) '(cancelled timeout)) (duet-rpc--call-cancel-fn call))
      (funcall (duet-rpc--call-cancel-fn call)))
    (when (duet-rpc--call-success-fn call) ; nil for a synchronous call
      (pcase outcome
        (`(result ,result)
         (duet-rpc--run-callback call (duet-rpc--call-success-fn call) result))
        (`(error ,err)
         (duet-rpc--run-callback call #'duet-rpc--handle-error-reply call err))
        (`(timeout ,text)
         (duet-rpc--run-callback
          call (or (duet-rpc--call-timeout-fn call)
                   (lambda () (message "duet-rpc: %s" text)))))))
    (duet-rpc--end-turn call)
    (duet-rpc--pending-changed call)
    t))

(defun duet-rpc--handle-error-reply (call err)
  "Pass ERR, the error in the reply to CALL, to its function, or show it."
  (let ((method (duet-rpc--call-method call))
        (function (duet-rpc--call-error-fn call)))
    ;; If the caller handles errors, leave `next-error' to other commands.
    (duet-rpc--keep-traceback (duet-rpc--call-server call) method err
                              (and function (not (duet-rpc--call-label call))))
    (if function
        (funcall function err)
      (message "duet-rpc: %s" (duet-rpc--format-error method err)))))

(defun duet-rpc--pending-changed (call)
  "Update the displays of pending requests: CALL was sent or finished."
  (let ((server (duet-rpc--call-server call)))
    (when (duet-rpc--call-label call)
      (duet-rpc--watch-running-calls))
    ;; The list of backends shows pending calls, except its own.
    (unless (equal (duet-rpc--call-method call) "gateway/status")
      (duet-rpc--refresh-backends-soon server))))

(defun duet-rpc--run-callback (call function &rest args)
  "Call FUNCTION with ARGS in the buffer of CALL, from the top level.
This may be a process filter, in which FUNCTION could not wait for another
reply.  If the buffer of CALL is t, call FUNCTION immediately; if it is
`any', in whatever buffer is current."
  (let ((buffer (duet-rpc--call-buffer call)))
    (if (eq buffer t)
        (apply function args)
      (duet-rpc--run-soon
       (lambda ()
         (when (or (eq buffer 'any) (buffer-live-p buffer))
           (with-current-buffer (if (eq buffer 'any) (current-buffer) buffer)
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

(defun duet-rpc--call-in-buffer (buffer function &rest args)
  "Call FUNCTION with ARGS in BUFFER, unless that has been killed."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (apply function args))))

(defun duet-rpc--send-cancel (call)
  "Notify the server that CALL is cancelled."
  (let ((server (duet-rpc--call-server call)))
    (when (duet-rpc--running-p server)
      (ignore-errors
        (jsonrpc-notify (duet-rpc--server-connection server)
                        '$/cancelRequest (list :id (duet-rpc--call-id call)))))))

(defun duet-rpc--set-deadline (call)
  "Set the deadline of CALL, its timeout counted from now; return it.
It is nil if CALL has no timeout."
  (setf (duet-rpc--call-deadline call)
        (unless (eq (duet-rpc--call-timeout call) 'none)
          (+ (float-time) (duet-rpc--call-timeout call)))))

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
          (when (<= deadline (float-time))
            (setq deadline (duet-rpc--time-out-call call)))
          (when deadline
            (setq next (min deadline (or next deadline))))))
      (when next (duet-rpc--schedule-deadline-check server next)))))

(defun duet-rpc--time-out-call (call)
  "Finish CALL with a timeout, and cancel it on the server.
If it has to wait for its worker's environment, or for an answer from this
Emacs, return a new deadline instead."
  (if (or (duet-rpc--preparing call)
          (< 0 (hash-table-count (duet-rpc--server-incoming (duet-rpc--call-server call)))))
      (duet-rpc--set-deadline call)
    (let* ((server (duet-rpc--call-server call))
           (other (car (duet-rpc--calls-ahead call)))
           (text (concat
                  (format "%s: no answer within %s s"
                          (duet-rpc--call-name call) (duet-rpc--call-timeout call))
                  (and (eql (duet-rpc--call-timeout call) duet-rpc-timeout)
                       " (the option `duet-rpc-timeout')")
                  (and other
                       (format "; %s has been running for %d s in the same %s"
                               (duet-rpc--call-name other)
                               (duet-rpc--running-seconds other)
                               (if (stringp (duet-rpc--queue call)) "worker" "process")))))
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
        (duet-rpc--send-cancel call))
      nil)))

(defun duet-rpc--format-error (method err)
  "Return a text about ERR, the JSON-RPC error object in METHOD's reply."
  (let* ((message (format "%s" (plist-get err :message)))
         (data (plist-get err :data))
         (expected (and (proper-list-p data) (plist-get data :expected))))
    (if (duet-rpc--exception err)
        (duet-rpc--format-exception method data)
      (concat (format "%s: %s" method
                      (string-remove-suffix (format ": %s" method) message))
              ;; duet-rpc's own message contains this already.
              (and (stringp expected) (not (string-search expected message))
                   (format "; %s: expected %s, received %s" (plist-get data :param)
                           expected (plist-get data :received)))))))

(defun duet-rpc--dispatch-notification (server method params)
  "Handle the notification METHOD with PARAMS from SERVER."
  (pcase method
    ('$/progress (duet-rpc--handle-progress server params))
    ('$/cancelRequest (duet-rpc--withdraw server (plist-get params :id)))
    ('client/say (duet-rpc--handle-say server params))
    ('client/notify
     (setq method (format "%s" (plist-get params :topic))
           params (plist-get params :params))
     (unless (gethash method duet-rpc--handlers)
       (duet-rpc--log server "nothing handles the topic %s" method)))
    ('client/methodsChanged
     (duet-rpc--run-soon (lambda () (duet-rpc--update-methods server))))
    ('gateway/stateChanged (duet-rpc--handle-state server params)))
  (when-let ((function (or (gethash (format "%s" method) duet-rpc--handlers)
                           (duet-rpc--eglot-handler server method
                                                    '-notification-dispatcher))))
    (duet-rpc--run-soon
     (lambda ()
       (condition-case-unless-debug err
           (duet-rpc--call-handler server function params)
         (error (duet-rpc--report-handler-error method err)))))))

(defun duet-rpc--handle-progress (server params)
  "Extend the deadline of a call of SERVER; PARAMS are those of $/progress."
  (when-let* ((token (plist-get params :token))
              ((integerp token))
              (call (gethash (abs token) (duet-rpc--server-pending server))))
    (duet-rpc--set-deadline call)
    (cond
     ((< token 0)
      (if (duet-rpc--call-label call)
          (funcall (duet-rpc--call-stream-fn call) (plist-get params :value))
        (duet-rpc--run-callback call (duet-rpc--call-stream-fn call)
                                (plist-get params :value))))
     ;; There may be many of them, and the mode line can be changed here.
     ((duet-rpc--call-label call)
      (duet-rpc--note-progress call (plist-get params :value)))
     ((duet-rpc--call-progress-fn call)
      (duet-rpc--run-callback call
                              (lambda (value)
                                ;; Not after a synchronous call has returned.
                                (unless (and (duet-rpc--call-outcome call)
                                             (not (duet-rpc--call-success-fn call)))
                                  (funcall (duet-rpc--call-progress-fn call) value)))
                              (plist-get params :value))))))

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
  (if-let ((function (or (cdr (assq method duet-rpc--client-methods))
                         (gethash (symbol-name method) duet-rpc--handlers)
                         (duet-rpc--eglot-handler server method '-request-dispatcher))))
      (duet-rpc--make-incoming-request
       :server server :method method :params params :function function
       :call (gethash (plist-get (and (listp params) (plist-get params :_meta)) :call)
                      (duet-rpc--server-pending server)))
    (jsonrpc-error :code -32601
                   :message (format "Method not found: %s" method))))

(defun duet-rpc--receive-request (connection id request)
  "Have REQUEST, whose id is ID, handled and replied to over CONNECTION."
  (setf (duet-rpc--incoming-request-id request) id)
  (puthash id request (duet-rpc--server-incoming
                       (duet-rpc--incoming-request-server request)))
  (duet-rpc--run-soon
   (lambda ()
     (let ((reply (lambda () (duet-rpc--reply connection request))))
       (if (assq (duet-rpc--incoming-request-method request) duet-rpc--questions)
           (duet-rpc--ask-in-turn reply)
         (funcall reply))))))

(defun duet-rpc--reply (connection request)
  "Handle REQUEST and reply over CONNECTION in any case.
The time that this takes does not count for the calls that wait."
  (let* ((server (duet-rpc--incoming-request-server request))
         (id (duet-rpc--incoming-request-id request))
         (method (duet-rpc--incoming-request-method request))
         ;; The reply if the user quits.
         (reply (duet-rpc--refusal -32800 "Request cancelled"))
         (duet-rpc--during id))
    (unwind-protect
        (unless (duet-rpc--incoming-request-withdrawn request)
          (setq reply (if (assq method duet-rpc--client-methods)
                          (duet-rpc--answer request reply)
                        (duet-rpc--run-handler request reply))))
      (remhash id (duet-rpc--server-incoming server))
      (dolist (call (hash-table-values (duet-rpc--server-pending server)))
        (when (duet-rpc--call-deadline call)
          (duet-rpc--set-deadline call)))
      (unless (duet-rpc--incoming-request-withdrawn request)
        (duet-rpc--send-reply connection request reply)))))

(defun duet-rpc--refusal (code text &optional data)
  "Return a reply that is an error with CODE, TEXT and DATA."
  `(:error (:code ,code :message ,text ,@(and data (list :data data)))))

(defun duet-rpc--send-reply (connection request reply)
  "Send REPLY to REQUEST over CONNECTION; do not log an answer that is secret."
  (let ((id (duet-rpc--incoming-request-id request))
        (secret (and (eq 'client/ask (duet-rpc--incoming-request-method request))
                     (plist-get (duet-rpc--incoming-request-params request) :secret))))
    (condition-case err
        (if (not secret)
            (apply #'jsonrpc-connection-send connection :id id reply)
          (cl-letf (((symbol-function 'jsonrpc--log-event) #'ignore)
                    ((symbol-function 'jsonrpc--event) #'ignore))
            (apply #'jsonrpc-connection-send connection :id id reply)))
      ;; The value is not valid JSON, or the daemon has exited.
      (error
       (duet-rpc--report-handler-error (duet-rpc--incoming-request-method request) err)
       (ignore-errors
         (apply #'jsonrpc-connection-send connection :id id
                (duet-rpc--refusal -32603 (error-message-string err))))))))

(defun duet-rpc--run-handler (request default)
  "Return the reply to REQUEST, that of the function which handles it.
DEFAULT is the reply if the user quits."
  (let ((function (duet-rpc--incoming-request-function request))
        (reply default))
    (condition-case err
        (duet-rpc--call-handler (duet-rpc--incoming-request-server request)
                                (lambda (params)
                                  (setq reply (list :result (funcall function params))))
                                (duet-rpc--incoming-request-params request))
      (jsonrpc-error
       (setq reply (duet-rpc--refusal
                    (or (alist-get 'jsonrpc-error-code (cddr err)) -32603)
                    (or (alist-get 'jsonrpc-error-message (cddr err))
                        (format "%s" (cadr err))))))
      (error
       (duet-rpc--report-handler-error (duet-rpc--incoming-request-method request) err)
       (setq reply (duet-rpc--refusal -32603 (error-message-string err)))))
    reply))


;;; What methods ask for

;; A method asks the user by the requests client/ask, client/choose and
;; client/confirm, and runs Lisp by emacs/call, emacs/eval and emacs/buffer.
;; Every call says what Emacs can do, and every such request says to which
;; call it belongs.  A call that is made while Emacs answers one has its id,
;; so that the daemon serves it at once: it waits for the answer itself.

(defun duet-rpc--trusted-p (server)
  "Return non-nil if methods of SERVER may run Lisp in this Emacs."
  (let ((host (duet-rpc--server-host server)))
    (or (equal host "")
        (cl-some (lambda (trusted) (equal host (file-remote-p trusted)))
                 duet-rpc-trusted-hosts))))

(defun duet-rpc--abilities (server)
  "Return what methods of SERVER may ask this Emacs for, as a vector."
  (if (duet-rpc--trusted-p server)
      ["ask" "choose" "confirm" "say" "emacs"]
    ["ask" "choose" "confirm" "say"]))

(defun duet-rpc--forget-peer (server)
  "Forget what SERVER's process has asked for, and the objects that it has."
  (dolist (id (hash-table-keys (duet-rpc--server-incoming server)))
    (duet-rpc--withdraw server id))
  (clrhash (duet-rpc--server-handles server))
  (clrhash (duet-rpc--server-handle-ids server)))

(defun duet-rpc--withdraw (server id)
  "Withdraw SERVER's request with ID; close its prompt if it has one."
  (when-let ((request (gethash id (duet-rpc--server-incoming server))))
    (setf (duet-rpc--incoming-request-withdrawn request) t)
    (duet-rpc--run-soon
     (lambda ()
       (when (duet-rpc--incoming-request-tag request)
         (throw (duet-rpc--incoming-request-tag request) nil))))))

(defun duet-rpc--ask-in-turn (function)
  "Call FUNCTION, which asks a question, once no other one is being asked."
  (if duet-rpc--asking
      (setq duet-rpc--waiting-questions
            (append duet-rpc--waiting-questions (list function)))
    (unwind-protect
        (let ((duet-rpc--asking t))
          (funcall function))
      (duet-rpc--ask-next-soon))))

(defun duet-rpc--ask-next-soon ()
  "Ask the next question that waits, from the top level."
  (when duet-rpc--waiting-questions
    (duet-rpc--run-soon
     (lambda ()
       (when (and duet-rpc--waiting-questions (not duet-rpc--asking))
         (duet-rpc--ask-in-turn (pop duet-rpc--waiting-questions)))))))

(defun duet-rpc--answer (request default)
  "Return the reply to REQUEST, which a method has made.
DEFAULT is the reply if the user quits, which also cancels the call."
  (let* ((server (duet-rpc--incoming-request-server request))
         (call (duet-rpc--incoming-request-call request))
         (question (assq (duet-rpc--incoming-request-method request) duet-rpc--questions))
         (tag (make-symbol "withdrawn")))
    (when (and call (duet-rpc--call-disarm call))
      (funcall (duet-rpc--call-disarm call)))
    (cond
     ((not (or question (duet-rpc--trusted-p server)))
      (duet-rpc--refusal -32004 (format "%s may not run Lisp in this Emacs; add it to \
`duet-rpc-trusted-hosts' to allow it" (duet-rpc--server-host server))))
     ((and question call (not (buffer-live-p (duet-rpc--call-origin call))))
      (duet-rpc--refusal -32005 "The buffer in which the call was made has been killed"))
     (t
      (setf (duet-rpc--incoming-request-tag request) tag)
      (unwind-protect
          (condition-case err
              ;; In a timer, quitting is inhibited.
              (let ((inhibit-quit nil))
                (or (catch tag
                      (duet-rpc--in-place
                       call question
                       (lambda ()
                         (list :result
                               (funcall (duet-rpc--incoming-request-function request)
                                        server
                                        (duet-rpc--incoming-request-params request))))))
                    default))
            (quit
             (when (and call (duet-rpc--finish-call call '(cancelled))
                        (duet-rpc--call-label call))
               (message "%s cancelled" (duet-rpc--call-label call)))
             default)
            (error
             (if question
                 (duet-rpc--refusal -32005 (error-message-string err))
               (duet-rpc--lisp-error-reply server err))))
        (setf (duet-rpc--incoming-request-tag request) nil))))))

(defun duet-rpc--lisp-error-reply (server err)
  "Return the error reply to SERVER for ERR, signaled by Lisp that it asked for."
  (duet-rpc--refusal
   -32006 (error-message-string err)
   (list :symbol (symbol-name (car err))
         :data (vconcat (mapcar (lambda (each) (duet-rpc--encode server each))
                                (if (proper-list-p (cdr err)) (cdr err) (list (cdr err))))))))

(defun duet-rpc--in-place (call question function)
  "Call FUNCTION where CALL was made: in its frame, its window and its buffer.
If QUESTION is non-nil, FUNCTION reads from the minibuffer."
  (let ((buffer (if call (duet-rpc--call-origin call) (current-buffer)))
        (frame (and call (duet-rpc--call-frame call)))
        (selected (selected-frame)))
    (if question
        (unwind-protect
            (let ((enable-recursive-minibuffers t)
                  (overriding-terminal-local-map nil))
              (when (bound-and-true-p isearch-mode)
                (isearch-done))
              (unless (or (eq frame selected) (not (frame-live-p frame)))
                (select-frame-set-input-focus frame))
              (with-current-buffer buffer (funcall function)))
          (when (and (eq frame (selected-frame)) (frame-live-p selected)
                     (not (eq frame selected)))
            (select-frame-set-input-focus selected)))
      (let ((window (and (buffer-live-p buffer)
                         (not (eq buffer (window-buffer)))
                         (get-buffer-window buffer t))))
        (cond
         (window (with-selected-window window (funcall function)))
         ((buffer-live-p buffer) (with-current-buffer buffer (funcall function)))
         (t (with-temp-buffer (funcall function))))))))

(defun duet-rpc--question-prompt (text &optional default)
  "Return TEXT as a prompt, with DEFAULT."
  (let ((text (string-trim-right (format "%s" text) "[ :\n]+")))
    (concat text
            (and default (not (equal default "")) (format " (default %s)" default))
            (if (string-suffix-p "?" text) " " ": "))))

(defun duet-rpc--ask (_server params)
  "Read a text in the minibuffer; PARAMS are those of client/ask."
  (let ((default (plist-get params :default)))
    (if (eq t (plist-get params :secret))
        (read-passwd (duet-rpc--question-prompt (plist-get params :prompt)) nil default)
      (substring-no-properties
       (read-string (duet-rpc--question-prompt (plist-get params :prompt) default)
                    nil 'duet-rpc-answer-history default)))))

(defun duet-rpc--confirm (_server params)
  "Ask a question for yes or no; PARAMS are those of client/confirm."
  (if (y-or-n-p (concat (string-trim-right (plist-get params :prompt)) " ")) t :json-false))

(defun duet-rpc--choose (_server params)
  "Read one or several choices; PARAMS are those of client/choose."
  (let* ((choices (mapcar (lambda (each) (cons (plist-get each :text) (plist-get each :note)))
                          (plist-get params :choices)))
         (names (mapcar #'car choices))
         (width (+ 2 (apply #'max 0 (mapcar #'string-width names))))
         (annotate (lambda (name)
                     (when-let ((note (cdr (assoc name choices))))
                       (concat (propertize " " 'display `(space :align-to ,width)) note))))
         (table (lambda (string predicate action)
                  (if (eq action 'metadata)
                      `(metadata (category . duet-rpc-choice)
                                 (display-sort-function . identity)
                                 (cycle-sort-function . identity)
                                 (annotation-function . ,annotate))
                    (complete-with-action action names string predicate))))
         (default (plist-get params :default)))
    (if (eq t (plist-get params :multiple))
        (duet-rpc--choose-several (plist-get params :prompt) table names
                                  (append default nil))
      (let ((prompt (duet-rpc--question-prompt (plist-get params :prompt) default))
            (answer nil))
        (unless names (error "There is nothing to choose from"))
        (while (not (member answer names))
          (setq answer (completing-read prompt table nil t nil 'duet-rpc-answer-history
                                        default)))
        (substring-no-properties answer)))))

(defvar crm-separator)

(defun duet-rpc--choose-several (prompt table names default)
  "Read several of NAMES with PROMPT and the completion TABLE; return a vector.
DEFAULT is a list of names."
  (let* ((separator (or (cl-find-if (lambda (each)
                                      (cl-notany (lambda (name) (string-search each name))
                                                 names))
                                    '("," ";" "|"))
                        "\t"))
         (crm-separator (format "[ \t]*%s[ \t]*" (regexp-quote separator)))
         (shown (cond ((not default) nil)
                      ((equal default names) "all")
                      (t (truncate-string-to-width (string-join default separator) 40
                                                   nil nil "..."))))
         (answer (completing-read-multiple
                  (duet-rpc--question-prompt (format "%s [separate with %s]" prompt separator)
                                             shown)
                  table nil t nil 'duet-rpc-answer-history
                  (and default (string-join default separator)))))
    (vconcat (cl-remove-if-not (lambda (name) (member name names))
                               (delete-dups (mapcar #'substring-no-properties answer))))))


;; Lisp for Python.

(defun duet-rpc--emacs-call (server params)
  "Call a function for SERVER; PARAMS are those of emacs/call."
  (duet-rpc--release-handles server params)
  (let ((name (plist-get params :function)))
    (duet-rpc--encode
     server (apply (or (intern-soft name) (signal 'void-function (list (make-symbol name))))
                   (mapcar (lambda (each) (duet-rpc--decode server each))
                           (plist-get params :args))))))

(defun duet-rpc--emacs-eval (server params)
  "Evaluate Lisp for SERVER; PARAMS are those of emacs/eval."
  (duet-rpc--release-handles server params)
  (let ((value nil))
    (dolist (form (with-temp-buffer
                    (insert (plist-get params :text) "\n")
                    (goto-char (point-min))
                    (cl-loop until (progn (duet-rpc--skip-comments) (eobp))
                             collect (read (current-buffer)))))
      (setq value (eval form t)))
    (duet-rpc--encode server value)))

(defun duet-rpc--skip-comments ()
  "Move over white space and comments in Lisp."
  (while (looking-at "[ \t\n\r\f]+\\|;.*")
    (goto-char (match-end 0))))

(defun duet-rpc--emacs-buffer (server params)
  "Describe a buffer for SERVER; PARAMS are those of emacs/buffer."
  (duet-rpc--release-handles server params)
  (let* ((call (gethash (plist-get (plist-get params :_meta) :call)
                        (duet-rpc--server-pending server)))
         (buffer (cond ((plist-get params :buffer)
                        (duet-rpc--decode server (plist-get params :buffer)))
                       (call (duet-rpc--call-origin call)))))
    (unless (buffer-live-p buffer)
      (signal 'duet-rpc-gone '("the buffer has been killed")))
    (with-current-buffer buffer
      `(:buffer ,(duet-rpc--handle-for server buffer)
        :name ,(buffer-name) :file ,buffer-file-name :mode ,(symbol-name major-mode)
        :point ,(point) :mark ,(mark t)
        ,@(and (eq t (plist-get params :text))
               (list :text (save-restriction
                             (widen)
                             (buffer-substring-no-properties (point-min) (point-max)))))))))

(defun duet-rpc--release-handles (server params)
  "Forget the handles that SERVER no longer has, according to PARAMS."
  (let ((handles (duet-rpc--server-handles server)))
    (mapc (lambda (id)
            (when-let ((entry (gethash id handles)))
              (when (<= (cl-decf (cdr entry)) 0)
                (remhash id handles)
                (remhash (car entry) (duet-rpc--server-handle-ids server)))))
          (plist-get params :release))))

(defvar duet-rpc--last-handle 0
  "Id of the last handle; unique among all servers.")

(defun duet-rpc--handle-for (server object)
  "Return a handle for OBJECT, which SERVER then has."
  (let* ((ids (duet-rpc--server-handle-ids server))
         (handles (duet-rpc--server-handles server))
         (id (or (gethash object ids)
                 (puthash object (cl-incf duet-rpc--last-handle) ids)))
         (entry (or (gethash id handles)
                    (puthash id (cons object 0) handles))))
    (cl-incf (cdr entry))
    (list :lisp "handle" :id id :type (symbol-name (type-of object))
          :text (truncate-string-to-width (format "%s" object) 200 nil nil "..."))))

(defun duet-rpc--handle-object (server id)
  "Return the object of SERVER's handle with ID.
Signal `duet-rpc-gone' if it has been deleted."
  (let ((object (car (gethash id (duet-rpc--server-handles server)))))
    (when (or (null object)
              (and (bufferp object) (not (buffer-live-p object)))
              (and (markerp object) (not (marker-buffer object)))
              (and (windowp object) (not (window-valid-p object)))
              (and (framep object) (not (frame-live-p object)))
              (and (overlayp object) (not (overlay-buffer object))))
      (signal 'duet-rpc-gone (list (if object (format "%s" object) "unknown handle"))))
    object))

(defun duet-rpc--decode (server value)
  "Return VALUE, JSON from SERVER as Lisp, as the Lisp object that it stands for."
  (cond
   ((eq value :json-false) nil)
   ((vectorp value) (vconcat (mapcar (lambda (each) (duet-rpc--decode server each)) value)))
   ((not (consp value)) value)
   ((not (plist-member value :lisp))
    (cl-loop for (key each) on value by #'cddr
             append (list key (duet-rpc--decode server each))))
   (t
    (pcase (plist-get value :lisp)
      ("symbol" (intern (plist-get value :name)))
      ("keyword" (intern (concat ":" (plist-get value :name))))
      ("list" (mapcar (lambda (each) (duet-rpc--decode server each))
                      (plist-get value :items)))
      ("cons" (cons (duet-rpc--decode server (plist-get value :car))
                    (duet-rpc--decode server (plist-get value :cdr))))
      ("plist" (cl-loop for member across (plist-get value :members)
                        append (list (duet-rpc--keyword (aref member 0))
                                     (duet-rpc--decode server (aref member 1)))))
      ("handle" (duet-rpc--handle-object server (plist-get value :id)))
      (kind (error "Unknown kind of value: %s" kind))))))

(defun duet-rpc--encode (server value)
  "Return VALUE, any Lisp object, as JSON in Lisp for SERVER."
  (cond
   ((memq value '(nil :null :json-null)) nil)
   ((memq value '(t :json-false)) value)
   ((numberp value) value)
   ((stringp value) (substring-no-properties value))
   ((keywordp value) (list :lisp "keyword" :name (substring (symbol-name value) 1)))
   ((symbolp value) (list :lisp "symbol" :name (symbol-name value)))
   ((vectorp value) (vconcat (mapcar (lambda (each) (duet-rpc--encode server each)) value)))
   ((hash-table-p value)
    (let ((keys (hash-table-keys value)))
      (if (cl-every (lambda (key) (or (stringp key) (and key (symbolp key)))) keys)
          (duet-rpc--encode-object
           server (cl-loop for key in keys
                           collect (cons (if (stringp key)
                                             (substring-no-properties key)
                                           (string-remove-prefix ":" (symbol-name key)))
                                         (gethash key value))))
        (duet-rpc--handle-for server value))))
   ((or (not (consp value)) (functionp value)) (duet-rpc--handle-for server value))
   ((not (proper-list-p value))
    (list :lisp "cons" :car (duet-rpc--encode server (car value))
          :cdr (duet-rpc--encode server (cdr value))))
   ((and (cl-evenp (length value))
         (cl-loop for (key) on value by #'cddr always (keywordp key)))
    (duet-rpc--encode-object
     server (cl-loop for (key each) on value by #'cddr
                     collect (cons (substring (symbol-name key) 1) each))))
   (t (vconcat (mapcar (lambda (each) (duet-rpc--encode server each)) value)))))

(defun duet-rpc--encode-object (server members)
  "Return MEMBERS, an alist of names and Lisp objects, as a JSON object for SERVER."
  (let ((encoded (cl-loop for (name . value) in members
                          collect (cons name (duet-rpc--encode server value)))))
    (cond
     ((assoc "lisp" encoded)
      (list :lisp "plist"
            :members (vconcat (cl-loop for (name . value) in encoded
                                       collect (vector name value)))))
     ((null encoded) (make-hash-table :test #'equal))
     (t (cl-loop for (name . value) in encoded
                 append (list (duet-rpc--keyword name) value))))))


;;; Failed methods

;; With --debug, the data of a failed method's error is a plist of `:type',
;; `:text', `:place' (FILE:LINE) and `:traceback', as Python prints it, and
;; that of an unknown method has the `:problems' with the user's files.

(defvar compilation-error-regexp-alist)
(defvar comint-file-name-prefix)

(defconst duet-rpc--traceback-buffer "*duet-rpc traceback*"
  "Name of the buffer with the last traceback.")

(defconst duet-rpc--places-buffer "*duet-rpc places*"
  "Name of the buffer with the places that a method has found.")

(defconst duet-rpc--problems-buffer "*duet-rpc problems*"
  "Name of the buffer with what is wrong with the files of methods.")

(defvar duet-rpc-traceback-mode-map
  (let ((map (make-sparse-keymap)))
    ;; In its parent, g runs a compilation.
    (define-key map "g" #'duet-rpc-call-again)
    map)
  "Keymap of `duet-rpc-traceback-mode'.")

(define-derived-mode duet-rpc-traceback-mode compilation-mode "Traceback"
  "Major mode for Python tracebacks and lists of problems.
\\<duet-rpc-traceback-mode-map>\\[compile-goto-error] visits the line of \
a frame, and so does \\[next-error] from any buffer.

\\{duet-rpc-traceback-mode-map}"
  :interactive nil
  (setq-local compilation-error-regexp-alist
              '(("^[ |+-]*File \"\\([^\"<\n][^\"\n]*\\)\", line \\([0-9]+\\)" 1 2)
                ("^\\([^ \t\n].*?\\.py\\):\\([0-9]+\\):? " 1 2))
              ;; Python has named files on its own host.
              comint-file-name-prefix (or (file-remote-p default-directory) "")))

(defun duet-rpc--exception (err)
  "Return the data of ERR, a JSON-RPC error object, if it is an exception."
  (let ((data (plist-get err :data)))
    (and (eql (plist-get err :code) -32603)
         (proper-list-p data)
         (stringp (plist-get data :type))
         data)))

(defun duet-rpc--data-without-traceback (err)
  "Return the data of ERR, a JSON-RPC error object, without its traceback."
  (if (duet-rpc--exception err)
      (cl-loop for (key value) on (plist-get err :data) by #'cddr
               unless (eq key :traceback) append (list key value))
    (plist-get err :data)))

(defun duet-rpc--format-exception (method data)
  "Return one line about METHOD's exception, which DATA describes."
  (let ((text (duet-rpc--first-line (plist-get data :text)))
        (place (plist-get data :place)))
    (concat (format "%s: %s" method (plist-get data :type))
            (unless (equal text "") (concat ": " text))
            (and (stringp place)
                 (format " (%s)" (file-name-nondirectory place)))
            (and (stringp (plist-get data :problem))
                 (format ", before the last change, which could not be loaded: %s"
                         (duet-rpc--first-line (plist-get data :problem)))))))

(defun duet-rpc--first-line (text)
  "Return the first line of TEXT, or of nil, cut to 200 characters."
  (truncate-string-to-width (car (split-string (or text "") "\n")) 200 nil nil "..."))

(defun duet-rpc--keep-traceback (server method err &optional quietly)
  "Keep the traceback in ERR, METHOD's error from SERVER, if there is one.
Make it the buffer that `next-error' uses, unless QUIETLY is non-nil."
  (when-let ((data (duet-rpc--exception err))
             (traceback (plist-get data :traceback)))
    (duet-rpc--list-places
     server duet-rpc--traceback-buffer (format "%s failed" method)
     ;; The place first, so that `next-error' begins with it.
     (concat (when-let ((place (plist-get data :place)))
               (format "%s: %s: %s\n\n" place (plist-get data :type)
                       (duet-rpc--first-line (plist-get data :text))))
             (string-trim-right traceback) "\n")
     quietly)))

(defun duet-rpc--list-places (server name title text &optional quietly)
  "Fill the buffer NAME with TITLE and TEXT.
TEXT has places in files on SERVER's host.  Make it the buffer that
`next-error' uses, unless QUIETLY is non-nil."
  (with-current-buffer (get-buffer-create name)
    (setq default-directory (duet-rpc--host-directory server))
    (duet-rpc-traceback-mode)
    (let ((inhibit-read-only t))
      (erase-buffer)
      (insert title "\n\n" text))
    (set-buffer-modified-p nil)
    (goto-char (point-min))
    (dolist (window (get-buffer-window-list nil nil t))
      (set-window-point window (point-min)))
    (unless quietly
      (setq next-error-last-buffer (current-buffer)))))

;;;###autoload
(defun duet-rpc-show-traceback ()
  "Show the traceback of the last method that failed.
In it, \\<duet-rpc-traceback-mode-map>\\[compile-goto-error] visits the \
line of a frame."
  (interactive)
  (let ((buffer (get-buffer duet-rpc--traceback-buffer)))
    (cond
     (buffer (pop-to-buffer buffer))
     ((memq duet-rpc-debug '(t everywhere))
      (user-error "No traceback; no method has failed on a host with --debug"))
     (t (user-error "No traceback: the option `duet-rpc-debug' is nil; \
M-x duet-rpc-show-log says where a method failed")))))

(defun duet-rpc--signal-user-error (err)
  "Signal a `user-error' that explains ERR, a `duet-rpc-error'.
If the program was not found, offer to install it first."
  (when (and (eq (car err) 'duet-rpc-program-not-found)
             (not (or duet-rpc-program noninteractive executing-kbd-macro
                      inhibit-quit))     ; as it is in a timer
             (duet-rpc-install))
    (user-error "Call it again when duet-rpc is installed"))
  (user-error "%s" (duet-rpc--explain-error err)))

(defun duet-rpc--explain-error (err)
  "Return a text about ERR, a `duet-rpc-error', and what to do about it."
  (concat (cadr err)
          (pcase (duet-rpc-error-code err)
            (-32601 (duet-rpc--not-found-hint err))
            (-32603 (duet-rpc--failure-hint (duet-rpc-error-data err))))))

(defun duet-rpc--failure-hint (data)
  "Return a text with the ways to see where a method failed with error DATA."
  (cond
   ((and (proper-list-p data) (plist-get data :place)) (duet-rpc--traceback-hint))
   ((duet-rpc--duet-rpc-server-p (duet-rpc--server)) "; M-x duet-rpc-show-log says where")
   (t "")))

(defun duet-rpc--traceback-hint ()
  "Return a text with the ways to see the last traceback."
  (concat (duet-rpc--next-error-hint) ", M-x duet-rpc-show-traceback shows more"))

(defun duet-rpc--next-error-hint ()
  "Return a text with the key of `next-error'."
  (format "; %s visits the line"
          ;; Emacs would choose C-x `, which is harder to read.
          (if (eq (key-binding (kbd "M-g n")) 'next-error)
              "M-g n"
            (substitute-command-keys "\\[next-error]"))))

(defun duet-rpc--not-found-hint (err)
  "Return what to do about ERR, the error of a method that was not found.
Return nil if that is not one of the user's own methods."
  (let ((method (car (split-string (cadr err) ": ")))
        (server (duet-rpc--server)))
    (when (and (duet-rpc--duet-rpc-server-p server)
               (not (string-match-p "/\\|__" method)))
      (let* ((folder (duet-rpc--methods-folder server))
             (similar (duet-rpc--similar-methods method))
             (unsaved (duet-rpc--unsaved-files folder))
             (data (duet-rpc-error-data err))
             (problems (append (and (proper-list-p data) (plist-get data :problems)) nil)))
        (when problems
          (duet-rpc--list-problems server problems
                                   (ignore-error duet-rpc-error
                                     (duet-rpc--described-methods))))
        (concat
         (cond
          (unsaved (format "; save %s first" (string-join unsaved " and ")))
          (problems
           (format "; %s could not be loaded: %s%s"
                   (if (cdr problems) (format "%d files" (length problems)) "a file")
                   (car problems) (duet-rpc--next-error-hint)))
          ((not similar)
           (format "; is its file in %s? (M-x duet-rpc-load-file loads \
any other file, M-x duet-rpc-list-methods lists all methods)"
                   (abbreviate-file-name folder))))
         (and similar (format "; did you mean %s?" (string-join similar " or "))))))))

(defun duet-rpc--unsaved-files (folder)
  "Return the names of the files in FOLDER whose buffers are modified."
  (cl-loop for buffer in (buffer-list)
           for file = (buffer-file-name buffer)
           when (and file (buffer-modified-p buffer) (file-in-directory-p file folder))
           collect (file-name-nondirectory file)))

(defun duet-rpc--similar-methods (name)
  "Return at most three names of methods that are similar to NAME."
  (let* ((distance (lambda (other) (string-distance (downcase name) (downcase other))))
         (names (mapcar #'duet-rpc--name
                        (ignore-error duet-rpc-error (duet-rpc--described-methods))))
         (near (cl-remove-if-not
                (lambda (other)
                  (<= (funcall distance other) (max 1 (/ (length name) 3))))
                names)))
    (seq-take (cl-sort near #'< :key distance) 3)))

(defun duet-rpc--handle-say (server params)
  "Show a text from SERVER in the echo area; PARAMS are those of client/say."
  (let* ((text (format "%s" (plist-get params :text)))
         ;; It may end with the command that helps.
         (line (truncate-string-to-width (car (split-string text "\n")) 400 nil nil "...")))
    (duet-rpc--log server "%s" text)
    (pcase (plist-get params :level)
      ("error"
       (duet-rpc--run-soon (lambda () (duet-rpc--list-problems-soon server (list text))))
       (duet-rpc--show-after-result (propertize line 'face 'error)))
      ("warn" (duet-rpc--show-after-result (propertize line 'face 'warning)))
      (_ (duet-rpc--run-soon (lambda () (message "%s" line)))))))

(defvar duet-rpc--shown-problem nil
  "The last text that `duet-rpc--show-after-result' has shown.")

(defun duet-rpc--show-after-result (line)
  "Show LINE in the echo area once no command waits for a reply any more.
A result that is shown at the same time would replace it; show both."
  (run-at-time
   0 nil
   (lambda ()
     (if duet-rpc--waiting
         (run-at-time 0.1 nil #'duet-rpc--show-after-result line)
       (let ((shown (current-message)))
         (setq duet-rpc--shown-problem line)
         (unless (and shown (duet-rpc--mentions-p shown line))
           (duet-rpc--echo (concat shown (and shown "\n") line))))))))

(defun duet-rpc--mentions-p (text problem)
  "Return non-nil if PROBLEM, or the beginning of it, is part of TEXT."
  (string-search (car (split-string problem "; the methods that it had")) text))

(defun duet-rpc--show-message (text)
  "Show TEXT, a result or an error, in the echo area.
If that has a problem in it, show both."
  (let ((shown (current-message)))
    (duet-rpc--echo (concat text
                            (and shown duet-rpc--shown-problem
                                 (string-search duet-rpc--shown-problem shown)
                                 (not (duet-rpc--mentions-p text duet-rpc--shown-problem))
                                 (concat "\n" duet-rpc--shown-problem))))))

(defun duet-rpc--echo (text)
  "Show TEXT in the echo area, and see that it stays until the next key.
After \\[execute-extended-command], Emacs suggests a key for a while, and \
then erases what
was shown meanwhile; see `suggest-key-bindings'."
  (message "%s" text)
  (when (and suggest-key-bindings (not noninteractive))
    (duet-rpc--show-again
     text num-input-keys
     (time-add nil (1+ (if (numberp suggest-key-bindings) suggest-key-bindings 2))))))

(defun duet-rpc--show-again (text keys deadline)
  "Show TEXT again if it is erased before DEADLINE.
KEYS is the value of `num-input-keys' when it was shown."
  (when (and (= keys num-input-keys) (time-less-p nil deadline))
    (if (current-message)
        (run-at-time 0.1 nil #'duet-rpc--show-again text keys deadline)
      (let ((message-log-max nil))
        (message "%s" text)))))


;;; Places in files

;; The daemon's log and its problems name a file without its directory.

(define-button-type 'duet-rpc-place
  'action (lambda (button)
            (duet-rpc--visit-place (button-get button 'duet-rpc-file)
                                   (button-get button 'duet-rpc-line)))
  'follow-link t
  'help-echo "mouse-1, RET: visit this line")

(defconst duet-rpc--place-regexp
  "\\bFile \"\\([^\"<\n][^\"\n]*\\)\", line \\([0-9]+\\)\
\\|\\([^][ \t\n\"'`(),:;=]+\\.py\\):\\([0-9]+\\)"
  "Regexp that matches a place; its groups are file and line, twice.")

(defun duet-rpc--make-links (begin end)
  "Make a button of each place from BEGIN to END, which are ends of lines."
  (save-excursion
    (goto-char begin)
    (while (re-search-forward duet-rpc--place-regexp end t)
      (make-text-button (match-beginning 0) (match-end 0)
                        'type 'duet-rpc-place
                        'duet-rpc-file (or (match-string-no-properties 1)
                                           (match-string-no-properties 3))
                        'duet-rpc-line (string-to-number (or (match-string 2)
                                                             (match-string 4)))))))

(defvar duet-rpc-log-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'forward-button)
    (define-key map (kbd "<backtab>") #'backward-button)
    map)
  "Keymap of `duet-rpc-log-mode'.")

(define-derived-mode duet-rpc-log-mode special-mode "duet-rpc log"
  "Major mode for the log of a server.
Places in it, such as words.py:12, are links; \
\\<duet-rpc-log-mode-map>\\[forward-button] moves to the next one.

\\{duet-rpc-log-mode-map}"
  :interactive nil
  (buffer-disable-undo)
  ;; Only what is displayed is searched for places.
  (jit-lock-register #'duet-rpc--make-links))

(defun duet-rpc--visit-place (file line)
  "Visit LINE of FILE, a name as a server on this buffer's host has it."
  (let ((name (duet-rpc--find-place
               file (unless (file-name-absolute-p file)
                      (duet-rpc--method-directories
                       (duet-rpc--server)
                       (ignore-error duet-rpc-error (duet-rpc--described-methods)))))))
    (unless name
      (user-error "Cannot tell where %s is; visit it with C-x C-f" file))
    (find-file-other-window name)
    (when line
      (goto-char (point-min))
      (forward-line (1- line)))))

(defun duet-rpc--find-place (file directories)
  "Return the full name of FILE, on this buffer's host, or nil.
If it has no directory, look in DIRECTORIES and in the list of buffers."
  (let ((host (file-remote-p default-directory)))
    (if (file-name-absolute-p file)
        (concat host file)
      (or (cl-loop for directory in directories
                   for name = (expand-file-name file directory)
                   when (file-readable-p name) return name)
          (cl-loop for buffer in (buffer-list)
                   for name = (buffer-file-name buffer)
                   when (and name
                             (equal host (file-remote-p name))
                             (equal (file-name-nondirectory name)
                                    (file-name-nondirectory file)))
                   return name)))))

(defun duet-rpc--methods-folder (server)
  "Return the folder on SERVER's host whose files are loaded as methods."
  (let* ((host (duet-rpc--server-host server))
         ;; Another host's environment is not known here.
         (config (and (equal host "") (getenv "XDG_CONFIG_HOME"))))
    (expand-file-name "duet-rpc/methods/"
                      (if (and config (file-name-absolute-p config))
                          config
                        (concat host "~/.config/")))))

(defun duet-rpc--method-directories (server methods)
  "Return the directories on SERVER's host that files of methods are in.
METHODS are descriptions of the methods; those that `duet-rpc-arguments'
and the methods folder contribute are known without them."
  (let ((host (duet-rpc--server-host server)))
    (delete-dups
     (append
      (list (duet-rpc--methods-folder server))
      (cl-loop for (option value) on duet-rpc-arguments
               when (and (equal option "--methods") value)
               collect (file-name-directory
                        (expand-file-name value (duet-rpc--directory server))))
      (cl-loop for method in methods
               for file = (plist-get (plist-get method :x-source) :file)
               when (stringp file)
               collect (concat host (file-name-directory file)))))))

(defun duet-rpc--described-methods ()
  "Return the daemon's descriptions of its methods, if it is running.
While it is running a method, return what it said before."
  (let ((server (duet-rpc--server)))
    (cond
     ((duet-rpc--busy-p server) (duet-rpc--server-methods server))
     ((duet-rpc--running-p server)
      (duet-rpc--note-discovery server (duet-rpc-request "rpc.discover" nil :timeout 2))))))

(defun duet-rpc--note-discovery (server answer)
  "Note the methods in ANSWER, SERVER's reply to rpc.discover; return them.
The daemon does not announce what it has sent in a reply."
  (let ((methods (append (plist-get answer :methods) nil)))
    (if (and methods (eq server (duet-rpc--local-server)))
        (duet-rpc--discovered methods nil)
      (setf (duet-rpc--server-methods server) methods))
    methods))

(defun duet-rpc--busy-p (server)
  "Return non-nil if SERVER itself is running a method for a command.
If it has workers, it answers at once."
  (and (not (duet-rpc--router-p server))
       (cl-some #'duet-rpc--call-label
                (hash-table-values (duet-rpc--server-pending server)))))

(defun duet-rpc--list-problems (server problems methods)
  "List PROBLEMS, texts, of SERVER's methods for `next-error'.
Most begin with a place, as in \"words.py:3: SyntaxError\" or \"words.py:2
imports\".
METHODS are descriptions of its methods, or nil."
  (let ((directories (duet-rpc--method-directories server methods))
        (default-directory (duet-rpc--host-directory server)))
    (duet-rpc--list-places
     server duet-rpc--problems-buffer "Problems in the files of your methods"
     (mapconcat (lambda (problem)
                  (let ((file (and (string-match "\\`\\(.+?\\.py\\):[0-9]+:? " problem)
                                   (duet-rpc--find-place (match-string 1 problem)
                                                         directories))))
                    (concat (if file
                                (concat (file-local-name file)
                                        (substring problem (match-end 1)))
                              problem)
                            "\n")))
                problems ""))))

(defun duet-rpc--list-problems-soon (server problems)
  "List PROBLEMS once SERVER has said where its files are."
  (let ((finish (lambda (&optional answer)
                  (duet-rpc--list-problems
                   server problems (duet-rpc--note-discovery server answer)))))
    (if (not (duet-rpc--running-p server))
        (funcall finish)
      (duet-rpc--async-request server "rpc.discover" nil :timeout 5
                               :success-fn finish
                               :error-fn (lambda (_) (funcall finish))
                               :timeout-fn finish))))


;;; Descriptions of methods

;; A description is an OpenRPC method object as a plist: `:name',
;; `:summary', `:description', `:params' (a vector), `:result', `:x-source',
;; and `:x-worker', the name of the worker that runs it, if there are any.

(defvar duet-rpc--kept-commands nil
  "The descriptions in the file of commands, as last read or written.")

(defun duet-rpc--methods (&optional own)
  "Return the descriptions of all methods on this buffer's host.
The user's own methods come first, the built-in ones last.  If OWN is
non-nil, leave out those, unless there are no others.

Return nil if the server does not describe its methods.  While it is
running a method, return what it said before instead of waiting, or else
the commands of the last session."
  (let* ((server (duet-rpc--server))
         (methods
          (or (and (duet-rpc--busy-p server)
                   (or (duet-rpc--server-methods server)
                       (and (eq server (duet-rpc--local-server)) duet-rpc--kept-commands)))
              (setf (duet-rpc--server-methods server)
                    (duet-rpc--request-methods server))))
         (built-in (and (duet-rpc--duet-rpc-server-p server)
                        (cl-remove-if-not #'duet-rpc--built-in-p methods)))
         (others (cl-set-difference methods built-in)))
    (if (and own others) others (append others built-in))))

(defun duet-rpc--built-in-p (method)
  "Return non-nil if METHOD, a description, is one of the daemon's own."
  (member (plist-get method :name)
          '("initialize" "listMethods" "describeMethods" "version" "setLogLevel"
            "shutdown" "reloadMethods" "loadMethods" "rpc.discover" "gateway/status"
            "gateway/restart" "gateway/stop" "gateway/log")))

(defun duet-rpc--request-methods (server)
  "Request the descriptions of SERVER's methods and return them."
  (or (duet-rpc--note-discovery server (duet-rpc--request-or-nil "rpc.discover"))
      (let ((summaries (append (duet-rpc--request-or-nil "listMethods") nil)))
        (mapcar (lambda (method)
                  (list :name (plist-get method :name)
                        :summary (plist-get (duet-rpc--find-named (plist-get method :name)
                                                                  summaries)
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
  (duet-rpc--find-named name (duet-rpc--methods)))

(defun duet-rpc--find-named (name plists)
  "Return the first of PLISTS, a sequence, whose `:name' is NAME, or nil."
  (cl-find name plists :test #'equal :key #'duet-rpc--name))

(defun duet-rpc--name (plist)
  "Return the `:name' in PLIST."
  (plist-get plist :name))

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
  (let* ((names (mapcar #'duet-rpc--name methods))
         (width (+ 2 (apply #'max 0 (mapcar #'length names))))
         (annotate
          (lambda (name)
            (when-let ((method (duet-rpc--find-named name methods)))
              (let ((signature (duet-rpc--signature method)))
                (concat (propertize " " 'display `(space :align-to ,width))
                        (plist-get method :summary)
                        (unless (equal signature "") (format " (%s)" signature)))))))
         (own (or (and (duet-rpc--duet-rpc-server-p (duet-rpc--server))
                       (mapcar #'duet-rpc--name
                               (cl-remove-if #'duet-rpc--built-in-p methods)))
                  names))
         (name
          (completing-read
           prompt
           (lambda (string predicate action)
             (if (eq action 'metadata)
                 `(metadata (category . duet-rpc-method)
                            (display-sort-function . identity)
                            (annotation-function . ,annotate))
               ;; The built-in methods are offered to those who begin to type one.
               (complete-with-action action (if (equal string "") own names)
                                     string predicate)))
           nil (and methods 'confirm) initial 'duet-rpc-method-history)))
    (when (equal name "")
      (user-error "No method given"))
    (or (duet-rpc--find-named name methods)
        (list :name name :params 'unknown))))

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
         ;; The value of empty input.
         (empty (cond ((not (duet-rpc--required-p param)) 'omit)
                      ((cl-some null-p all) nil)
                      (t 'again)))
         (prompt (duet-rpc--param-prompt param empty))
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
     ((and (equal type "string") (equal (plist-get kind :format) "path"))
      (duet-rpc--read-path prompt-end empty))
     ((equal type "string") (duet-rpc--read-text prompt empty offer))
     ((or (not kind) (not type))
      (duet-rpc--read-validated
       prompt-end empty (lambda (text) (duet-rpc--parse-any text kinds))))
     (t (duet-rpc--read-validated (concat prompt ", as JSON): ") empty
                                  #'duet-rpc--parse-json)))))

(defun duet-rpc--param-prompt (param empty)
  "Return the prompt for the value of PARAM, without its closing parenthesis.
EMPTY is what empty input stands for: `omit', nil for null, or `again' if
the value is read again."
  (let* ((schema (plist-get param :schema))
         (default (plist-get schema :default))
         (what (plist-get schema :description)))
    (concat (plist-get param :name) " (" (duet-rpc--type-name schema)
            (cond ((eq empty 'again) "")
                  ((not empty) ", empty for null")
                  (default (format ", default %s" (duet-rpc--format-value default)))
                  (t ", optional"))
            (and what (concat "; " (duet-rpc--prompt-help what))))))

(defun duet-rpc--parse-any (text schemas)
  "Return the JSON value in TEXT, which is for a parameter of one of SCHEMAS.
If strings are among them, TEXT that is not JSON stands for itself, so
that a string needs no quotes."
  (condition-case err
      (duet-rpc--parse-json text)
    (error (if (cl-some (lambda (each) (member (plist-get each :type) '("string" nil)))
                        schemas)
               text
             (signal (car err) (cdr err))))))

(defun duet-rpc--prompt-help (text)
  "Return the first line of TEXT, the description of a parameter, for a prompt."
  (truncate-string-to-width
   (string-remove-suffix "." (car (split-string (string-trim text) "\n"))) 60 nil nil "..."))

(defun duet-rpc--read-path (prompt empty)
  "Read the name of a file with PROMPT and return it as an absolute name.
EMPTY is the value of empty input; if it is `again', that is the file
that is being visited, or else prompt again."
  (let* ((default (if (eq empty 'again) (or buffer-file-name "") ""))
         (name ""))
    (while (and (equal name "")
                (equal "" (setq name (read-file-name prompt nil default)))
                (eq empty 'again)))
    (if (equal name "")
        empty
      (duet-rpc--path-for-method (expand-file-name name)
                                 (not (file-remote-p default-directory))))))

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


;;; Commands that are running

;; A command does not wait for its method.  Its call has a label, by which
;; the mode line shows it and `duet-rpc-cancel' offers it.

(defvar duet-rpc--mode-line nil
  "What the mode line says about the commands that are running.")
;;;###autoload (put 'duet-rpc--mode-line 'risky-local-variable t)
(put 'duet-rpc--mode-line 'risky-local-variable t)

(defvar duet-rpc--mode-line-timer nil
  "Timer that updates the mode line while a command is running.")

(defun duet-rpc--running-calls ()
  "Return a list of what commands wait for, newest first."
  (let (calls)
    (maphash (lambda (_ server)
               (maphash (lambda (_ call)
                          (when (duet-rpc--call-label call) (push call calls)))
                        (duet-rpc--server-pending server)))
             duet-rpc--servers)
    (sort calls (lambda (one other)
                  (> (duet-rpc--call-token one) (duet-rpc--call-token other))))))

(defun duet-rpc--seconds (call)
  "Return the age of CALL in seconds, as an integer."
  (floor (- (float-time) (duet-rpc--call-start-time call))))

(defun duet-rpc--read-running-call ()
  "Return a command's pending call.
If there are several, prompt for one of them."
  (let ((calls (duet-rpc--running-calls)))
    (if (not (cdr calls))
        (or (car calls) (user-error "No command of duet-rpc is running"))
      (let* ((names (cl-loop
                     for call in calls
                     for number downfrom (length calls)
                     collect (cons (format "%d: %s, %d s" number (duet-rpc--call-label call)
                                           (duet-rpc--seconds call))
                                   call)))
             (table (lambda (string predicate action)
                      (if (eq action 'metadata)
                          '(metadata (display-sort-function . identity)
                                     (cycle-sort-function . identity))
                        (complete-with-action action names string predicate)))))
        (cdr (assoc (completing-read (format-prompt "Cancel" (caar names)) table nil t
                                     nil nil (caar names))
                    names))))))

(defun duet-rpc--watch-running-calls ()
  "Make the mode line show what is running, as long as anything is.
A command that takes no time to notice is not shown."
  (cond
   ((not (duet-rpc--running-calls))
    (when duet-rpc--mode-line-timer
      (cancel-timer duet-rpc--mode-line-timer)
      (setq duet-rpc--mode-line-timer nil))
    (when duet-rpc--mode-line
      (setq duet-rpc--mode-line nil
            global-mode-string (delq 'duet-rpc--mode-line global-mode-string))
      (force-mode-line-update t)))
   ((not duet-rpc--mode-line-timer)
    (setq duet-rpc--mode-line-timer
          (run-with-timer 0.3 1 #'duet-rpc--update-mode-line)))
   (duet-rpc--mode-line (duet-rpc--update-mode-line))))

(defun duet-rpc--update-mode-line ()
  "Show in the mode line which command is running, and for how long."
  (let* ((calls (duet-rpc--running-calls))
         (call (car calls)))
    (if (not call)
        (duet-rpc--watch-running-calls)
      (unless (listp global-mode-string)
        (setq global-mode-string (list global-mode-string)))
      (unless (memq 'duet-rpc--mode-line global-mode-string)
        (setq global-mode-string
              (append (or global-mode-string '("")) '(duet-rpc--mode-line))))
      (setq duet-rpc--mode-line
            ;; The value of a variable is shown as it is, without %-constructs.
            (propertize
             (format " [%s%s %ds%s]" (duet-rpc--call-label call)
                     (let ((ahead (length (duet-rpc--calls-ahead call))))
                       (cond ((duet-rpc--call-progress call)
                              (concat " " (duet-rpc--call-progress call)))
                             ((< 0 ahead) (format " %d ahead" ahead))
                             (t "")))
                     (duet-rpc--seconds call)
                     (if (cdr calls) (format " +%d" (length (cdr calls))) ""))
             'help-echo "A command of duet-rpc; M-x duet-rpc-cancel ends it"))
      (force-mode-line-update t))))

(defun duet-rpc--cancel-on-quit (call)
  "Make \\[keyboard-quit] cancel CALL if it is the next key.
After any other key it quits as always."
  (let* ((map (make-sparse-keymap))
         (cancel (lambda () (interactive) (duet-rpc-cancel call))))
    (define-key map [remap keyboard-quit] cancel)
    (define-key map (vector (nth 3 (current-input-mode))) cancel)
    (setf (duet-rpc--call-disarm call) (set-transient-map map))))


;;; Targets: where a result goes

(cl-defstruct (duet-rpc--target (:constructor duet-rpc--make-target)
                                (:copier nil))
  "Where the result of a call goes, and what was there when it was made."
  name                       ; of the command or method, for messages
  how                        ; as in `duet-rpc-define-command', or `auto'
  buffer
  point                      ; a marker
  begin end                  ; markers: the text that was sent, or all of it
  text                       ; the text between them, nil if it was not sent
  tick                       ; `buffer-chars-modified-tick'
  point-deleted              ; non-nil if the text around point has been deleted
  forget                     ; function that ends the watch for that
  save-excursion review
  plain                      ; non-nil if a text is to be shown as it is
  stream-end                 ; marker: where the next part of a stream goes
  stream-undo)               ; `buffer-undo-list' after the last part

(cl-defun duet-rpc--capture-target (name how &key bounds save-excursion review)
  "Return a target for the result of NAME, to be delivered according to HOW.
BOUNDS is the part of the buffer that was sent, as (BEGIN . END).
SAVE-EXCURSION and REVIEW are slots of the target."
  (let ((target (duet-rpc--make-target
                 :name name :how how :buffer (current-buffer)
                 :point (copy-marker (point))
                 ;; What is inserted at its ends does not become part of it.
                 :begin (copy-marker (or (car bounds) (point-min)) t)
                 :end (copy-marker (or (cdr bounds) (point-max)))
                 :text (and bounds (buffer-substring-no-properties (car bounds) (cdr bounds)))
                 :tick (buffer-chars-modified-tick)
                 :save-excursion save-excursion :review review)))
    (when (memq how '(insert stream))
      (duet-rpc--watch-point target))
    target))

(defun duet-rpc--watch-point (target)
  "Notice when the text around TARGET's point is deleted."
  (let* ((point (duet-rpc--target-point target))
         (buffer (duet-rpc--target-buffer target))
         (watch (lambda (begin end)
                  (when (and (marker-buffer point) (< begin point end))
                    (setf (duet-rpc--target-point-deleted target) t)))))
    (add-hook 'before-change-functions watch nil t)
    (setf (duet-rpc--target-forget target)
          (lambda ()
            (when (buffer-live-p buffer)
              (with-current-buffer buffer
                (remove-hook 'before-change-functions watch t)))))))

(defun duet-rpc--release-target (target)
  "Release TARGET's markers and hook."
  (when (duet-rpc--target-forget target)
    (funcall (duet-rpc--target-forget target)))
  (dolist (marker (list (duet-rpc--target-point target) (duet-rpc--target-begin target)
                        (duet-rpc--target-end target)))
    (set-marker marker nil)))

(defun duet-rpc--target-problem (target part)
  "Return why PART of TARGET cannot be changed any more, or nil.
PART is `point' or `text'."
  (let ((buffer (duet-rpc--target-buffer target)))
    (cond
     ((not (buffer-live-p buffer)) "its buffer has been killed")
     ((and (buffer-local-value 'buffer-read-only buffer) (not inhibit-read-only))
      (format "%s is read-only" buffer))
     ((eq part 'point)
      (and (duet-rpc--target-point-deleted target)
           (format "the place for it in %s has been deleted" buffer)))
     ((duet-rpc--text-changed-p target)
      (format "the text in %s has changed meanwhile" buffer)))))

(defun duet-rpc--text-changed-p (target)
  "Return non-nil if the text that TARGET is about has been changed."
  (not (or (= (duet-rpc--target-tick target)
              (buffer-chars-modified-tick (duet-rpc--target-buffer target)))
           (and (duet-rpc--target-text target)
                (equal (duet-rpc--target-text target) (duet-rpc--current-text target))))))

(defun duet-rpc--current-text (target)
  "Return the text that TARGET is about, as it is now."
  (with-current-buffer (duet-rpc--target-buffer target)
    (save-restriction
      (widen)
      (buffer-substring-no-properties (duet-rpc--target-begin target)
                                      (max (duet-rpc--target-begin target)
                                           (duet-rpc--target-end target))))))


;;; Delivering results

;; Some results say what they are: objects with a member "duet".

(defun duet-rpc--deliver (target result)
  "Deliver RESULT to TARGET."
  (unwind-protect
      (let ((how (duet-rpc--target-how target)))
        (cond
         ((and (duet-rpc--target-stream-end target) (null result))
          (message "%s: done" (duet-rpc--target-name target)))
         ((not (duet-rpc--shown-p how))
          (if (buffer-live-p (duet-rpc--target-buffer target))
              (with-current-buffer (duet-rpc--target-buffer target)
                (funcall how result))
            (duet-rpc--show-instead target result "its buffer has been killed")))
         (t
          (pcase (duet-rpc--kind result)
            ('change (duet-rpc--deliver-change target result))
            ("image" (duet-rpc--show-image target result))
            (_ (duet-rpc--deliver-value target result))))))
    (unless (eq 'review (duet-rpc--target-forget target))
      (duet-rpc--release-target target))))

(defun duet-rpc--shown-p (how)
  "Return non-nil if HOW is to show or insert a result, not a function."
  (memq how '(auto nil message insert stream replace edit buffer none)))

(defun duet-rpc--kind (result)
  "Return the kind of RESULT: \"text\", \"image\", `change' or nil.
A change is an edit or a goto, or a list of those."
  (let ((kind (lambda (value)
                (and (consp value) (keywordp (car value)) (plist-get value :duet)))))
    (cond
     ((and (vectorp result) (< 0 (length result)))
      (and (cl-every (lambda (each) (member (funcall kind each) '("edit" "goto"))) result)
           'change))
     ((member (funcall kind result) '("edit" "goto")) 'change)
     ((car (member (funcall kind result) '("text" "image")))))))

(defun duet-rpc--deliver-value (target result)
  "Deliver RESULT, which is not a change itself, according to TARGET's how."
  (let* ((how (duet-rpc--target-how target))
         (name (duet-rpc--target-name target))
         (value (if (equal (duet-rpc--kind result) "text") (plist-get result :text) result)))
    (cond
     ((eq how 'none))
     ((and (null value) (not (memq how '(nil buffer message))))
      (message "%s: done" name))
     ((memq how '(insert stream))
      (duet-rpc--change target result 'point
                        (lambda () (duet-rpc--insert-at target (duet-rpc--format-value value t)))))
     ((memq how '(replace edit))
      (if (duet-rpc--target-review target)
          (duet-rpc--review target (duet-rpc--format-value value t))
        (duet-rpc--change target result 'text
                          (lambda ()
                            (duet-rpc--replace-text
                             target (duet-rpc--format-value value t))))))
     ((or (eq how 'message)
          (and (eq how 'auto) (not (equal (duet-rpc--kind result) "text"))
               (duet-rpc--short-p value)))
      (duet-rpc--show-message (duet-rpc--truncate (duet-rpc--format-value value))))
     (t (duet-rpc--show-result result name (duet-rpc--target-plain target))))))

(defun duet-rpc--short-p (value)
  "Return non-nil if VALUE can be shown in the echo area."
  (if (stringp value)
      (and (not (string-search "\n" (string-trim-right value)))
           (< (string-width value) (max 79 (frame-width))))
    (not (or (consp value) (vectorp value) (hash-table-p value)))))

(defun duet-rpc--show-instead (target result why)
  "Show RESULT in a buffer, because TARGET cannot have it; WHY is the reason."
  (duet-rpc--show-result result (duet-rpc--target-name target))
  (message "%s: %s; the result is in *duet-rpc result*" (duet-rpc--target-name target) why))

(defun duet-rpc--change (target result part function)
  "Call FUNCTION to change TARGET's buffer, in one undo step; return non-nil.
If PART of it cannot be changed any more, show RESULT in a buffer instead
and return nil.  All of the change is made, or nothing."
  (let ((why (duet-rpc--target-problem target part)))
    (if why
        (progn (duet-rpc--show-instead target result why) nil)
      (condition-case err
          (with-current-buffer (duet-rpc--target-buffer target)
            (save-restriction
              (widen)
              (undo-boundary)
              (let ((group (prepare-change-group)))
                (atomic-change-group (funcall function))
                (undo-amalgamate-change-group group))
              (undo-boundary))
            t)
        (error
         (duet-rpc--show-instead target result (error-message-string err))
         nil)))))

(defun duet-rpc--insert-at (target text)
  "Insert TEXT at TARGET's point.
Move point behind it only in windows where it has not been moved."
  (let* ((begin (marker-position (duet-rpc--target-point target)))
         (stay (duet-rpc--target-save-excursion target))
         (windows (unless stay
                    (cl-remove-if-not (lambda (window) (= (window-point window) begin))
                                      (get-buffer-window-list nil nil t))))
         (here (= (point) begin)))
    (save-excursion
      (goto-char begin)
      (insert text))
    (when (and here (not stay))
      (goto-char (+ begin (length text))))
    (dolist (window windows)
      (set-window-point window (+ begin (length text))))))

;; Streams.  Each part is inserted where the last one ended, at once: there
;; may be many of them.

(defun duet-rpc--streams-p (server method how)
  "Return non-nil if METHOD of SERVER can stream its result for HOW."
  (and (duet-rpc--takes-meta-p server method)
       (or (eq how 'stream)
           (and (memq how '(nil auto buffer insert))
                (eq t (plist-get (duet-rpc--find-named
                                  (format "%s" method) (duet-rpc--server-methods server))
                                 :x-stream))))))

(defun duet-rpc--stream (target call value)
  "Insert VALUE, a part of the result of CALL, at the end of TARGET's stream."
  (let ((text (if (stringp value)
                  value
                (mapconcat (lambda (each) (concat (duet-rpc--format-value each) "\n"))
                           value "")))
        (inhibit-read-only nil))        ; which it is in a filter of jsonrpc.el
    (condition-case err
        (progn
          (unless (duet-rpc--target-stream-end target)
            (duet-rpc--begin-stream target))
          (duet-rpc--insert-part target text))
      (error
       (if (eq (duet-rpc--target-how target) 'buffer)
           (progn
             (duet-rpc-cancel call)
             (message "%s cancelled: %s" (duet-rpc--target-name target)
                      (error-message-string err)))
         ;; The rest of it goes to a buffer of its own.
         (message "%s: %s; the result is in *duet-rpc result*"
                  (duet-rpc--target-name target) (error-message-string err))
         (setf (duet-rpc--target-how target) 'buffer
               (duet-rpc--target-stream-end target) nil)
         (duet-rpc--stream target call value))))))

(defun duet-rpc--begin-stream (target)
  "Set the place for the first part of a stream for TARGET."
  (setf (duet-rpc--target-stream-end target)
        (if (memq (duet-rpc--target-how target) '(insert stream))
            (let ((why (duet-rpc--target-problem target 'point)))
              (when why (error "%s" why))
              (with-current-buffer (duet-rpc--target-buffer target) (undo-boundary))
              (copy-marker (duet-rpc--target-point target)))
          (duet-rpc--show-result "" (duet-rpc--target-name target) t)
          (with-current-buffer "*duet-rpc result*"
            (buffer-disable-undo)
            (point-min-marker)))))

(defun duet-rpc--insert-part (target text)
  "Insert TEXT, a part of a stream, at the end of what TARGET has of it.
Where point is at that end, it stays there.  All parts are one undo step,
unless something else is changed in between."
  (let* ((end (duet-rpc--target-stream-end target))
         (buffer (marker-buffer end)))
    (unless buffer (error "Its buffer has been killed"))
    (with-current-buffer buffer
      (let* ((inhibit-read-only (or inhibit-read-only
                                    (eq (duet-rpc--target-how target) 'buffer)
                                    (not (eq buffer (duet-rpc--target-buffer target)))))
             (stay (duet-rpc--target-save-excursion target))
             (here (and (not stay) (= (point) end)))
             (windows (unless stay
                        (cl-remove-if-not (lambda (window) (= (window-point window) end))
                                          (get-buffer-window-list nil nil t)))))
        (when (and (consp buffer-undo-list) (null (car buffer-undo-list))
                   (duet-rpc--target-stream-undo target)
                   (eq (cdr buffer-undo-list) (duet-rpc--target-stream-undo target)))
          (pop buffer-undo-list))
        (save-excursion
          (save-restriction
            (widen)
            (goto-char end)
            (insert text)
            (set-marker end (point))))
        (setf (duet-rpc--target-stream-undo target)
              (and (consp buffer-undo-list) buffer-undo-list))
        (when here (goto-char end))
        (dolist (window windows)
          (set-window-point window end))))))

(defconst duet-rpc--replace-seconds 0.2
  "Number of seconds to look for the smallest change, at most.
After that, the whole text is replaced.")

(defun duet-rpc--replace-text (target text)
  "Replace the text that TARGET is about with TEXT.
Point, marks and overlays stay with the words they are at; where point is
at one end of the text, it stays at that end."
  (let* ((begin (marker-position (duet-rpc--target-begin target)))
         (end (max begin (duet-rpc--target-end target)))
         (new-end (+ begin (length text)))
         (stay (lambda (position)
                 (cond ((= position end) new-end)
                       ((= position begin) begin))))
         (point (funcall stay (point)))
         (windows (cl-loop for window in (get-buffer-window-list nil nil t)
                           for position = (funcall stay (window-point window))
                           when position collect (cons window position))))
    (duet-rpc--replace-part begin end text)
    (when point (goto-char point))
    (pcase-dolist (`(,window . ,position) windows)
      (set-window-point window position))))

(defun duet-rpc--replace-part (begin end text)
  "Replace the text from BEGIN to END with TEXT, changing as little as possible.
If all of it has to be replaced, keep the line and column of point."
  (let ((buffer (current-buffer))
        (place (and (< begin (point) end)
                    (cons (count-lines begin (line-beginning-position)) (current-column)))))
    (with-temp-buffer
      (insert text)
      (let ((source (current-buffer)))
        (with-current-buffer buffer
          (unless
              ;; Narrowing moves point, if it is elsewhere.
              (save-excursion
                (save-restriction
                  (narrow-to-region begin end)
                  (replace-buffer-contents source duet-rpc--replace-seconds)))
            (when place
              (goto-char begin)
              (forward-line (car place))
              (move-to-column (cdr place)))))))))

(defun duet-rpc--deliver-change (target result)
  "Make the edits in RESULT to TARGET, then follow its gotos."
  (let* ((all (if (vectorp result) (append result nil) (list result)))
         (gotos (cl-remove "edit" all :test #'equal
                           :key (lambda (each) (plist-get each :duet))))
         (edits (cl-loop for each in all
                         append (append (plist-get each :edits) nil)))
         (review (or (duet-rpc--target-review target)
                     (cl-some (lambda (each) (eq t (plist-get each :review))) all))))
    (when (or (not edits)
              (condition-case err
                  (let ((sorted (duet-rpc--check-edits target edits)))
                    (if review
                        (progn (duet-rpc--review-edits target sorted result) nil)
                      (duet-rpc--change target result 'text
                                        (lambda () (duet-rpc--make-edits target sorted)))))
                (user-error
                 (duet-rpc--show-instead target result (cadr err))
                 nil)))
      (duet-rpc--follow-gotos target gotos))))

(defun duet-rpc--target-length (target)
  "Return the number of characters of the text that TARGET is about."
  (if (buffer-live-p (duet-rpc--target-buffer target))
      (- (duet-rpc--target-end target) (duet-rpc--target-begin target))
    most-positive-fixnum))

(defun duet-rpc--check-edits (target edits)
  "Return EDITS of TARGET sorted, last first.
Signal a `user-error' if one is outside the text, or two overlap."
  (let ((limit (duet-rpc--target-length target)))
    (unless (duet-rpc--target-problem target 'text)
      (dolist (edit edits)
        (let ((start (plist-get edit :start)) (end (plist-get edit :end)))
          (unless (and (integerp start) (integerp end) (<= 0 start end limit))
            (user-error "An edit from %s to %s is outside the text, which has %d characters"
                        start end limit)))))
    (let ((sorted (sort (copy-sequence edits)
                        (lambda (one other)
                          (> (plist-get one :start) (plist-get other :start))))))
      (cl-loop for (later earlier) on sorted
               when (and earlier (> (plist-get earlier :end) (plist-get later :start)))
               do (user-error "Two edits overlap, at %s" (plist-get later :start)))
      sorted)))

(defun duet-rpc--make-edits (target edits)
  "Make EDITS, sorted with the last first, in TARGET's buffer."
  (let ((base (marker-position (duet-rpc--target-begin target))))
    (dolist (edit edits)
      (duet-rpc--replace-part (+ base (plist-get edit :start))
                              (+ base (plist-get edit :end))
                              (or (plist-get edit :text) "")))))

(defun duet-rpc--follow-gotos (target gotos)
  "Go to the first of GOTOS, the result for TARGET; list them if there are more.
If the user has gone to another buffer meanwhile, only show it."
  (when gotos
    (let* ((place (lambda (each) (format "File \"%s\", line %s" (plist-get each :file)
                                         (plist-get each :line))))
           (first (car gotos))
           (file (plist-get first :file))
           (here (and (eq (window-buffer) (duet-rpc--target-buffer target))
                      (not (active-minibuffer-window))))
           (buffer (and (stringp file) (file-readable-p file) (find-file-noselect file))))
      (when (cdr gotos)
        (duet-rpc--list-places (duet-rpc--local-server)
                               duet-rpc--places-buffer
                               (format "Places that %s found" (duet-rpc--target-name target))
                               (concat (mapconcat place gotos "\n") "\n")))
      (cond
       ((not buffer)
        (message "%s: cannot visit %s" (duet-rpc--target-name target) file))
       (here
        (push-mark nil t)
        (pop-to-buffer-same-window buffer)
        (duet-rpc--go-to-line first))
       (t
        (when-let ((window (display-buffer buffer '(nil (inhibit-same-window . t)))))
          (with-selected-window window (duet-rpc--go-to-line first)))
        (message "%s: %s" (duet-rpc--target-name target) (funcall place first)))))))

(defun duet-rpc--go-to-line (goto)
  "Move to the line and column in GOTO; widen if necessary."
  (let (position)
    (save-restriction
      (widen)
      (goto-char (point-min))
      (forward-line (1- (or (plist-get goto :line) 1)))
      (forward-char (min (or (plist-get goto :column) 0)
                         (- (line-end-position) (point))))
      (setq position (point)))
    (unless (<= (point-min) position (point-max)) (widen))
    (goto-char position)))


;;; Reviewing a change

(defvar-local duet-rpc--reviewed nil
  "Function that makes the change in this buffer.")

(defvar-local duet-rpc--reviewed-target nil
  "Target of the change in this buffer.")

(defvar duet-rpc-review-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "C-c C-c") #'duet-rpc-review-apply)
    (define-key map (kbd "C-c C-k") #'duet-rpc-review-drop)
    map)
  "Keymap of `duet-rpc-review-mode'.")

(define-minor-mode duet-rpc-review-mode
  "Minor mode for a buffer with a change that waits for your consent.
\\<duet-rpc-review-mode-map>\\[duet-rpc-review-apply] makes the change, \
\\[duet-rpc-review-drop] drops it."
  :interactive nil)

(defun duet-rpc--review (target text)
  "Show what would change if TEXT replaced the text that TARGET is about."
  (duet-rpc--show-review target text text
                         (lambda () (duet-rpc--replace-text target text))))

(defun duet-rpc--review-edits (target edits result)
  "Show what EDITS, sorted with the last first, would change in TARGET.
RESULT is what they are from."
  (duet-rpc--show-review
   target
   (if (duet-rpc--target-problem target 'text)
       ""
     (let ((text (duet-rpc--current-text target)))
       (with-temp-buffer
         (insert text)
         (dolist (edit edits)
           (goto-char (1+ (plist-get edit :start)))
           (delete-char (- (plist-get edit :end) (plist-get edit :start)))
           (insert (or (plist-get edit :text) "")))
         (buffer-string))))
   result
   (lambda () (duet-rpc--make-edits target edits))))

(defun duet-rpc--show-review (target text result change)
  "Show the difference between the text of TARGET and TEXT.
CHANGE is a function that makes the change.  RESULT is shown instead if
that is not possible any more."
  (let ((why (or (duet-rpc--target-problem target 'text)
                 (unless (executable-find "diff") "the program diff, which shows changes, was not found"))))
    (if why
        (duet-rpc--show-instead target result why)
      (let ((diff (duet-rpc--diff target (duet-rpc--current-text target) text))
            (name (duet-rpc--target-name target)))
        (if (equal diff "")
            (message "%s: no change" name)
          (setf (duet-rpc--target-forget target) 'review)
          (with-current-buffer (generate-new-buffer (format "*duet-rpc review of %s*" name))
            (insert diff)
            (diff-mode)
            (duet-rpc-review-mode 1)
            (setq buffer-read-only t
                  duet-rpc--reviewed-target target
                  duet-rpc--reviewed (lambda ()
                                       (duet-rpc--change target result 'text change))
                  header-line-format
                  (substitute-command-keys
                   (format " Change by %s: \\<duet-rpc-review-mode-map>\
\\[duet-rpc-review-apply] makes it, \\[duet-rpc-review-drop] drops it" name)))
            (add-hook 'kill-buffer-hook
                      (lambda ()
                        (setf (duet-rpc--target-forget target) nil)
                        (duet-rpc--release-target target))
                      nil t)
            (set-buffer-modified-p nil)
            (goto-char (point-min))
            (if (and (eq (window-buffer) (duet-rpc--target-buffer target))
                     (not (active-minibuffer-window)))
                (pop-to-buffer (current-buffer))
              (display-buffer (current-buffer)))))))))

(defun duet-rpc--diff (target old new)
  "Return the difference between OLD and NEW, a text of TARGET, in unified format."
  (let ((name (buffer-name (duet-rpc--target-buffer target)))
        (coding-system-for-write 'utf-8-unix)
        (coding-system-for-read 'utf-8-unix)
        (default-directory temporary-file-directory)
        (one (make-temp-file "duet-rpc"))
        (other (make-temp-file "duet-rpc")))
    (unwind-protect
        (with-temp-buffer
          (write-region old nil one nil 'silent)
          (write-region new nil other nil 'silent)
          (call-process "diff" nil t nil "-u" "-L" name
                        "-L" (concat name " (after the change)") one other)
          (buffer-string))
      (delete-file one)
      (delete-file other))))

(defun duet-rpc-review-apply ()
  "Make the change in this buffer, in one undo step."
  (interactive nil duet-rpc-review-mode)
  (unless duet-rpc--reviewed
    (user-error "There is no change in this buffer"))
  (let ((buffer (current-buffer))
        (target (duet-rpc--target-name duet-rpc--reviewed-target)))
    (when (funcall duet-rpc--reviewed)
      (message "%s: changed; C-/ in that buffer undoes it" target))
    (duet-rpc--close-review buffer)))

(defun duet-rpc-review-drop ()
  "Drop the change in this buffer."
  (interactive nil duet-rpc-review-mode)
  (duet-rpc--close-review (current-buffer))
  (message "Change dropped"))

(defun duet-rpc--close-review (buffer)
  "Kill BUFFER and close its window."
  (if-let ((window (get-buffer-window buffer)))
      (quit-restore-window window 'kill)
    (kill-buffer buffer)))


;;; Showing results

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
  (require 'json)
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
  "Return non-nil if METHOD is that of a tool, or tools/call."
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

(defun duet-rpc--show-result (result name &optional plain)
  "Show RESULT, which NAME returned, in a buffer.
A text is shown as text, a list of objects as a table and anything else as
JSON.  If PLAIN is non-nil, a text is in no particular format."
  (let ((directory default-directory)
        (duet (and (equal (duet-rpc--kind result) "text") result)))
    (with-current-buffer (get-buffer-create "*duet-rpc result*")
      (let ((inhibit-read-only t))
        (fundamental-mode)              ; without the last one's local variables
        (setq truncate-lines nil)       ; which is permanent
        (erase-buffer)
        (cond
         (duet (duet-rpc--insert-text (plist-get duet :text) (plist-get duet :mode)))
         ((or plain (stringp result)) (duet-rpc--insert-text result nil))
         ((duet-rpc--table-p result) (duet-rpc--insert-table result))
         (t (duet-rpc--insert-text (duet-rpc--encode-json result t) 'json))))
      (goto-char (point-min))
      (setq default-directory directory)
      (unless (derived-mode-p 'tabulated-list-mode)
        (view-mode 1)
        (setq header-line-format (format " Result of %s" name)))
      (set-buffer-modified-p nil)
      (display-buffer (current-buffer)))))

(defun duet-rpc--insert-text (text mode)
  "Insert TEXT and turn on MODE: nil, `json' or the name of a major mode."
  (insert text)
  (unless (bolp) (insert "\n"))
  (cond
   ((> (buffer-size) duet-rpc--large-result)
    ;; It may be a single line, which Emacs displays slowly.
    (setq-local bidi-inhibit-bpa t
                bidi-paragraph-direction 'left-to-right
                truncate-lines t))
   ((eq mode 'json)
    (if (fboundp 'js-json-mode) (js-json-mode) (js-mode)))
   ((duet-rpc--major-mode mode)
    (condition-case err
        (funcall (duet-rpc--major-mode mode))
      (error (message "%s: %s" mode (error-message-string err)))))
   (t (text-mode))))

(defun duet-rpc--major-mode (name)
  "Return the major mode NAME as a function, or nil if there is none."
  (let ((symbol (and (stringp name) (string-suffix-p "-mode" name) (intern-soft name))))
    (and symbol (commandp symbol) (not (memq symbol minor-mode-list)) symbol)))

(defun duet-rpc--table-p (result)
  "Return non-nil if RESULT is a list of objects."
  (and (vectorp result)
       (< 0 (length result))
       (cl-every (lambda (each) (and (consp each) (keywordp (car each)))) result)))

(defun duet-rpc--insert-table (rows)
  "Insert ROWS, a vector of plists, as a table."
  (let* ((keys (delete-dups (cl-loop for row across rows
                                     append (cl-loop for (key) on row by #'cddr
                                                     collect key))))
         (cell (lambda (row key)
                 (if (not (plist-member row key))
                     ""
                   (replace-regexp-in-string
                    "[\n\r\t]+" " " (duet-rpc--format-value (plist-get row key))))))
         (number (lambda (key)
                   (cl-every (lambda (row) (numberp (plist-get row key))) rows))))
    (tabulated-list-mode)
    (setq tabulated-list-format
          (vconcat
           (mapcar
            (lambda (key)
              (let* ((name (substring (symbol-name key) 1))
                     (width (cl-loop for row across rows
                                     maximize (string-width (funcall cell row key)))))
                `(,name ,(min 60 (max (1+ (string-width name)) width))
                        ,(if (funcall number key)
                             (lambda (one other)
                               (< (plist-get (car one) key) (plist-get (car other) key)))
                           t)
                        ,@(and (funcall number key) '(:right-align t)))))
            keys))
          tabulated-list-padding 1
          tabulated-list-entries
          (mapcar (lambda (row)
                    (list row (vconcat (mapcar (lambda (key) (funcall cell row key)) keys))))
                  rows))
    (tabulated-list-init-header)
    (tabulated-list-print)))

(defun duet-rpc--show-image (target result)
  "Show RESULT, an image for TARGET; in a terminal, offer to save it."
  (let* ((name (duet-rpc--target-name target))
         (mime (or (plist-get result :mime) "image"))
         (data (ignore-errors (base64-decode-string (plist-get result :data))))
         (type (and data (display-images-p) (ignore-errors (image-type-from-data data))))
         (displayable (and type (image-type-available-p type)))
         (buffer (get-buffer-create "*duet-rpc image*")))
    (if (not data)
        (message "%s: the data of its image is not base64" name)
      (with-current-buffer buffer
        (let ((inhibit-read-only t))
          (fundamental-mode)
          (erase-buffer)
          (if displayable
              (progn
                (set-buffer-multibyte nil)
                (insert data)
                (let ((inhibit-message t)) ; how to see it as text
                  (image-mode))
                (setq header-line-format (format " Image by %s" name)))
            (set-buffer-multibyte t)
            (special-mode)
            (insert (format "The result of %s is an image (%s, %d bytes).\n\
This Emacs cannot display it%s.\n\n" name mime (length data)
                            (if (display-images-p) "" ", for it has only a terminal here")))
            (insert-text-button "Save it" 'follow-link t
                                'action (lambda (_) (duet-rpc--save-image data mime)))
            (insert " to a file.\n")
            (goto-char (point-min))
            (forward-button 1)))
        (set-buffer-modified-p nil))
      (display-buffer buffer)
      (unless displayable
        (message "%s: an image, which this Emacs cannot display; *duet-rpc image* saves it"
                 name)))))

(defun duet-rpc--save-image (data mime)
  "Write DATA, an image of type MIME, to a file that the user chooses."
  (let* ((extension (if (string-match "\\`image/\\([a-z]+\\)" mime)
                        (match-string 1 mime)
                      "png"))
         (file (read-file-name "Save the image as: " nil nil nil
                               (concat "image." extension)))
         (coding-system-for-write 'no-conversion))
    (write-region data nil file nil nil nil t)))


;;; Calling interactively

(defvar duet-rpc-method-history nil
  "History of method names read in the minibuffer.")

(defvar duet-rpc-value-history nil
  "History of parameter values read in the minibuffer.")

(defvar duet-rpc--last-call nil
  "Arguments of the last `duet-rpc-call'.")

;;;###autoload
(defun duet-rpc-call (method params &optional how wait)
  "Call METHOD with PARAMS and show the result in a buffer.
Interactively, prompt for the method and for each of its parameters.
With a prefix argument, insert the result at point, or replace the region
with it if that is active.

Emacs does not wait for the result.  \\[keyboard-quit] as the next key
cancels the call, and so does \\[duet-rpc-cancel] later.

From Lisp, HOW is nil, `insert', `replace', `message' or a function to
call with the result.  The result of a tool is its text, or else its
structured content.  If WAIT is non-nil, wait for the result and return
it."
  (interactive
   (duet-rpc--with-user-errors
     (when current-prefix-arg (barf-if-buffer-read-only))
     (let* ((description (duet-rpc--read-method "Call: " (duet-rpc--methods)))
            (params (duet-rpc--read-params description)))
       (list (plist-get description :name) params
             (and current-prefix-arg (if (use-region-p) 'replace 'insert))))))
  (setq duet-rpc--last-call (list method params how wait))
  (when (and (eq how 'replace) (not (use-region-p)))
    (user-error "No active region; select the text to replace first"))
  (duet-rpc--run method params how
                 :wait wait
                 :bounds (and (eq how 'replace) (cons (region-beginning) (region-end)))))

;;;###autoload
(defun duet-rpc-call-again ()
  "Repeat the last `duet-rpc-call' with the same parameters."
  (interactive)
  (unless duet-rpc--last-call
    (user-error "No call to repeat; M-x duet-rpc-call makes one"))
  (apply #'duet-rpc-call duet-rpc--last-call))

(cl-defun duet-rpc--run (method params how &key label wait timeout bounds
                                save-excursion review)
  "Call METHOD with PARAMS for a command; deliver the result according to HOW.
LABEL is the command's name, by default METHOD.  TIMEOUT is in seconds.
BOUNDS is the part of the buffer that is sent.  SAVE-EXCURSION and REVIEW
are as in a target.

If WAIT is non-nil, wait for the result and return it.  In a keyboard
macro, always wait: the keys that follow are meant for what it changes."
  (when (memq how '(insert stream replace edit))
    (barf-if-buffer-read-only)
    (setq deactivate-mark t))
  (duet-rpc--with-user-errors
    (let* ((server (duet-rpc--ensure-server))
           (label (format "%s" (or label method)))
           (tool (duet-rpc--tool-p method))
           (target (duet-rpc--capture-target label how :bounds bounds
                                             :save-excursion save-excursion
                                             :review review))
           (deliver (lambda (answer)
                      (let ((result (if tool (duet-rpc--tool-result method answer) answer)))
                        (setf (duet-rpc--target-plain target)
                              (and tool (stringp result)))
                        (duet-rpc--deliver target result)
                        result))))
      (if (or wait executing-kbd-macro)
          (funcall deliver
                   (condition-case err
                       (duet-rpc--request-with-progress server method params timeout
                                                        (duet-rpc--shown-p how))
                     ((error quit)
                      (duet-rpc--release-target target)
                      (signal (car err) (cdr err)))))
        (let ((call (duet-rpc--run-in-background server method params label timeout
                                                 target deliver)))
          ;; In a timer, quitting is inhibited, and the user has not called it.
          (unless inhibit-quit
            (duet-rpc--cancel-on-quit call)))
        nil))))

(defun duet-rpc--run-in-background (server method params label timeout target deliver)
  "Call METHOD of SERVER with PARAMS and return the call.
Pass the result to DELIVER.  LABEL and TIMEOUT are those of the call;
TARGET is released if it fails."
  (let ((call nil)
        (fail (lambda (text)
                (duet-rpc--release-target target)
                (duet-rpc--show-message text))))
    (setq call
          (duet-rpc--async-request
           server method params
           :buffer 'any :label label :timeout (or timeout 'none)
           :progress-fn (and (duet-rpc--progress-p server method) #'ignore)
           :stream-fn (and (duet-rpc--streams-p server method (duet-rpc--target-how target))
                           (lambda (value) (duet-rpc--stream target call value)))
           :success-fn
           (lambda (result)
             (condition-case err
                 (funcall deliver (if (duet-rpc--shown-p (duet-rpc--target-how target))
                                      (duet-rpc--call-exact-result call)
                                    result))
               (duet-rpc-error (funcall fail (cadr err)))))
           :error-fn
           (lambda (err)
             (let ((default-directory (duet-rpc--host-directory server)))
               (funcall fail
                        (duet-rpc--explain-error
                         (list 'duet-rpc-error (duet-rpc--format-error method err)
                               (plist-get err :code) (plist-get err :data))))))
           :cancel-fn (lambda () (duet-rpc--release-target target))))
    call))

(defun duet-rpc--progress-p (server method)
  "Return non-nil if METHOD of SERVER may be asked to report progress.
Another server might mistake the token for a parameter."
  (and (or (eq (duet-rpc--server-state server) 'starting)
           (duet-rpc--duet-rpc-server-p server))
       (or (not (string-search "/" (format "%s" method)))
           (duet-rpc--tool-p method))))

(defun duet-rpc--note-progress (call value)
  "Show VALUE, the progress of CALL, in the mode line."
  (let ((done (plist-get value :done)) (total (plist-get value :total)))
    (let ((text (cond ((and (numberp done) (numberp total) (> total 0))
                       (format "%d%%" (/ (* 100 done) total)))
                      ((plist-get value :message)
                       (truncate-string-to-width (format "%s" (plist-get value :message)) 20
                                                 nil nil "...")))))
      (unless (equal text (duet-rpc--call-progress call))
        (setf (duet-rpc--call-progress call) text)
        (when duet-rpc--mode-line (duet-rpc--update-mode-line))))))

(defun duet-rpc--request-with-progress (server method params timeout exact)
  "Call METHOD of SERVER with PARAMS and return the result.
Show progress in the echo area.  TIMEOUT and EXACT are as in
`duet-rpc--request'."
  (let* ((reporter nil)
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
            server method params :timeout timeout :exact exact
            :progress-fn (and (duet-rpc--progress-p server method) report))
      (when reporter (progress-reporter-done reporter)))))


;;; Where parameters come from

;; A source is the name of something in the current buffer, or a Lisp form:
;; "region", "buffer", "line", "symbol", "file", "point", "mode", "prefix",
;; or a plist (:lisp TEXT).

(defconst duet-rpc--sources
  '(("region" . "the region, or the whole buffer if it is not active")
    ("buffer" . "the text of the buffer")
    ("line" . "the line at point")
    ("symbol" . "the symbol at point")
    ("file" . "the name of the visited file")
    ("point" . "point, counted from 0")
    ("mode" . "the major mode")
    ("prefix" . "the prefix argument"))
  "Alist of sources and their descriptions.")

(defun duet-rpc--source-bounds (source)
  "Return the bounds of the text that SOURCE stands for, or nil."
  (pcase source
    ("region" (if (use-region-p)
                  (cons (region-beginning) (region-end))
                (cons (point-min) (point-max))))
    ("buffer" (cons (point-min) (point-max)))
    ("line" (cons (line-beginning-position) (line-end-position)))
    ("symbol" (bounds-of-thing-at-point 'symbol))))

(defun duet-rpc--source-value (source optional local)
  "Return the value of SOURCE, or `omit'.
If OPTIONAL is non-nil, omit what is not there; else signal a
`user-error'.  If LOCAL is non-nil, the method runs on this machine."
  (pcase source
    ((or "region" "buffer" "line" "symbol")
     (if-let ((bounds (duet-rpc--source-bounds source)))
         (buffer-substring-no-properties (car bounds) (cdr bounds))
       (if optional 'omit (user-error "No symbol at point"))))
    ("file"
     (cond
      (buffer-file-name (duet-rpc--path-for-method buffer-file-name local))
      (optional 'omit)
      (t (user-error "%s visits no file" (buffer-name)))))
    ("point" (- (point) (point-min)))
    ("mode" (symbol-name major-mode))
    ("prefix" (if (and optional (not current-prefix-arg))
                  'omit
                (prefix-numeric-value current-prefix-arg)))
    ((and (pred consp) (guard (stringp (plist-get source :lisp))))
     (let ((value (eval (car (read-from-string (plist-get source :lisp))) t)))
       (if (and (consp value) (not (keywordp (car value)))) (vconcat value) value)))
    (_ (user-error "Unknown source of a parameter: %S" source))))

(defun duet-rpc--path-for-method (file local)
  "Return FILE, an absolute name, as the host of its method has it.
Signal a `user-error' if LOCAL is non-nil and FILE is on another host."
  (let ((host (file-remote-p file)))
    (if (and host local)
        (user-error "%s is on another host, and the method runs on this machine; \
@command(remote=True) runs it there" (abbreviate-file-name file))
      (file-local-name file))))


;;; Commands in Lisp

;;;###autoload
(defmacro duet-rpc-define-command (name method &rest args)
  "Define a command NAME to call METHOD, a string.
ARGS may begin with a docstring.  The rest are keyword arguments, which
are not evaluated:

:params is a plist of the parameters to send.  These values stand for
something in the current buffer: `region' (or the whole buffer if the
region is not active), `buffer', `line', `symbol' (the one at point),
`file' (the name of the visited file), `point', `mode' and `prefix'.  The
value `prompt' means to read the value in the minibuffer; any other value
is sent as it is.

:result says what to do with the result: `message' (the default),
`insert', `replace' (the text that was sent), `edit' (the same; the result
may also be an edit), `buffer', `none', or a function to call with it,
given by its name or as a lambda expression.

:key is a key to bind it to globally, as for `kbd'.

:wait t means that Emacs waits for the result; the command then returns
it.  Otherwise the command returns at once, and the result is delivered
when it is there.  (:async nil is the same as :wait t.)

:timeout is the number of seconds after which to give up.

    (duet-rpc-define-command my-upcase \"upcase\"
      :params (:text region) :result replace)"
  (declare (indent 2) (doc-string 3) (debug (symbolp stringp &rest sexp)))
  (let* ((doc (if (stringp (car args))
                  (pop args)
                (format "Call the method `%s' of duet-rpc." method)))
         (result (or (plist-get args :result) 'message))
         (result (if (symbolp result) `',result result))
         (key (plist-get args :key))
         (wait (or (plist-get args :wait)
                   (and (plist-member args :async) (not (plist-get args :async))))))
    (duet-rpc--check-command-args name args)
    `(progn
       (duet-rpc--check-how ',name ,result)
       (defun ,name ()
         ,doc
         (interactive)
         (duet-rpc--run-command
          ',name ,method ',(plist-get args :params) ,result
          :wait ',wait :timeout ,(plist-get args :timeout)))
       ,@(and key `((global-set-key (kbd ,key) #',name)))
       ',name)))

(defun duet-rpc--check-command-args (name args)
  "Signal an error if ARGS is not what `duet-rpc-define-command' takes for NAME.
ARGS is a plist of the keyword arguments, as they are written."
  (let ((params (plist-get args :params))
        (result (plist-get args :result))
        (timeout (plist-get args :timeout))
        (key (plist-get args :key)))
    (cl-loop for (keyword) on args by #'cddr
             unless (memq keyword '(:params :result :wait :async :timeout :key))
             do (error "%s: unknown keyword %S" name keyword))
    (unless (and (proper-list-p params) (cl-evenp (length params))
                 (cl-loop for (key) on params by #'cddr always (keywordp key)))
      (error "%s: :params must be an unquoted plist, such as (:text region)" name))
    (unless (if (consp result)
                (not (eq (car result) 'quote))
              (and (symbolp result) (not (keywordp result))))
      (error "%s: :result must be message, insert, replace, edit, buffer, none or a \
function, unquoted" name))
    (when (and (eq result 'replace)
               (not (cl-intersection '(region buffer line symbol) params)))
      (error "%s: :result replace needs region, buffer, line or symbol in :params" name))
    (unless (or (null timeout) (numberp timeout))
      (error "%s: :timeout must be a number of seconds" name))
    (unless (or (null key) (stringp key))
      (error "%s: :key must be a string, such as \"C-c w\"" name))))

(defun duet-rpc--check-how (name how)
  "Signal an error unless HOW, the :result of the command NAME, is valid."
  (unless (or (memq how '(message insert replace edit buffer none)) (functionp how)
              (and (symbolp how) (not (keywordp how)) (fboundp how)))
    (error "%s: :result is %s, which is not a function; see C-h f \
duet-rpc-define-command" name how)))

(cl-defun duet-rpc--run-command (name method params how &key wait timeout)
  "Call METHOD for NAME, a command that `duet-rpc-define-command' has defined.
PARAMS and HOW are its :params and :result, WAIT and TIMEOUT its :wait
and :timeout."
  (duet-rpc--with-user-errors
    (let* ((bounds nil)
           (sent
            (cl-loop
             for (key value) on params by #'cddr
             for source = (and (symbolp value) (assoc (symbol-name value) duet-rpc--sources)
                               (symbol-name value))
             for found = (cond
                          (source
                           (setq bounds (or bounds (duet-rpc--source-bounds source)))
                           (duet-rpc--source-value source nil nil))
                          ((eq value 'prompt) (duet-rpc--read-param-named method key))
                          (t value))
             unless (eq found 'omit) append (list key found))))
      (duet-rpc--run method sent how :label name :wait wait :timeout timeout
                     :bounds (and (memq how '(replace edit)) bounds)))))

(defun duet-rpc--read-param-named (method key)
  "Read the value of the parameter KEY, a keyword, of METHOD."
  (let ((name (substring (symbol-name key) 1)))
    (duet-rpc--read-param
     (or (duet-rpc--find-named name (plist-get (duet-rpc--find-description method) :params))
         (list :name name :required t :schema '(:type "string"))))))


;;; Commands in Python

;; The description of a method made with @command has an `:x-command': a
;; plist of `:name', `:key', `:result', `:modes', `:saveExcursion',
;; `:review', `:remote' and `:sources'.  While `duet-rpc-mode' is on, each
;; of them is a command of this Emacs.
;;
;; Only the daemon on this machine defines commands: a source may be a Lisp
;; form, and another host's daemon may not have Lisp evaluated here.

(defvar duet-rpc--commands (make-hash-table :test #'eq)
  "The descriptions of the commands that are defined, by symbol.")

(defvar duet-rpc--keys nil
  "Alist of the names of keys and the keys, as `kbd' returns them.
It is kept with the commands, because `kbd' loads two libraries in
Emacs 28, which would take more time than everything else at the start.")

(defvar duet-rpc--reported-problems nil
  "Problems with commands that the user has been told of.")

(defvar duet-rpc--refreshing-commands nil
  "Non-nil while rpc.discover is pending; `again' if it is out of date.")

(defvar duet-rpc--idle-timer nil
  "Timer that looks for new commands when Emacs is first idle.")

;;;###autoload
(define-minor-mode duet-rpc-mode
  "Make the commands in your files of methods commands of this Emacs.
A function with the decorator @command is one; it can be called with
\\[execute-extended-command] and with the key it names, and \
\\[describe-function] shows its docstring.

The commands of the last session are there at once, and no process is
started for them until one is called, unless a file in the methods folder
is newer than they are.  They are updated when a file of methods is saved,
by Emacs or by another program, whenever the daemon notices a change, and
by \\[duet-rpc-reload]."
  :global t
  (when duet-rpc--idle-timer
    (cancel-timer duet-rpc--idle-timer)
    (setq duet-rpc--idle-timer nil))
  (cond
   (duet-rpc-mode
    (add-hook 'after-save-hook #'duet-rpc--after-save)
    (add-hook 'help-fns-describe-function-functions #'duet-rpc--describe-command)
    (duet-rpc--define-commands (duet-rpc--read-kept-commands))
    (if (gethash "" duet-rpc--servers)
        (duet-rpc--server-is-ready (gethash "" duet-rpc--servers))
      ;; After the init file and the first redisplay, so that neither waits.
      ;; Not later: somebody who types might never let Emacs be idle for long.
      (setq duet-rpc--idle-timer
            (run-with-idle-timer 0 nil #'duet-rpc--look-for-new-commands))))
   (t
    (remove-hook 'after-save-hook #'duet-rpc--after-save)
    (duet-rpc--watch-folder)
    (remove-hook 'help-fns-describe-function-functions #'duet-rpc--describe-command)
    (duet-rpc--define-commands nil))))


;; The file with the commands of the last session.

(defun duet-rpc--commands-file ()
  "Return the name of the file with the commands of the last session."
  (locate-user-emacs-file "duet-rpc-commands.eld"))

(defun duet-rpc--read-kept-commands ()
  "Return the descriptions of the commands of the last session.
The file is read, not loaded; if it is damaged, there are none."
  (setq duet-rpc--kept-commands
        (ignore-errors
          (with-temp-buffer
            (let ((coding-system-for-read 'utf-8-emacs-unix))
              (insert-file-contents (duet-rpc--commands-file)))
            (pcase (read (current-buffer))
              (`(duet-rpc-commands 2 ,keys . ,(and (pred proper-list-p) methods))
               (when (and (proper-list-p keys)
                          (cl-loop for (name . key) in keys
                                   always (and (stringp name)
                                               (or (stringp key) (vectorp key)))))
                 (setq duet-rpc--keys keys))
               ;; `cl-remove-if-not' would load another library.
               (cl-loop for method in methods
                        when (duet-rpc--command-p method) collect method)))))))

(defun duet-rpc--keep-commands (methods)
  "Write METHODS, the descriptions of all commands, to the file.
Write them even if they are the same as before if the file is older than
a file of methods, which would otherwise be taken for new at each start."
  (when (or (not (equal methods duet-rpc--kept-commands)) (duet-rpc--new-files-p))
    (setq duet-rpc--kept-commands methods)
    (condition-case err
        (let* ((file (file-truename (duet-rpc--commands-file)))
               (part (make-temp-file (concat file ".")))
               (coding-system-for-write 'utf-8-emacs-unix)
               (print-length nil)
               (print-level nil)
               (print-circle nil))
          ;; Rename it when it is complete; another Emacs may be reading it.
          (with-temp-file part
            (insert ";; The commands in your files of methods; see `duet-rpc-mode'.\n")
            (prin1 `(duet-rpc-commands
                     2
                     ,(cl-loop for method in methods
                               for key = (duet-rpc--command-key method)
                               when key
                               collect (cons (plist-get (plist-get method :x-command) :key)
                                             key))
                     ,@methods)
                   (current-buffer)))
          (rename-file part file t))
      (file-error
       (duet-rpc--log (duet-rpc--local-server) "cannot keep the commands: %s"
                      (error-message-string err))))))

(defun duet-rpc--command-p (method)
  "Return non-nil if METHOD, a description, is that of a command."
  (and (proper-list-p method)
       (stringp (plist-get method :name))
       (let ((command (plist-get method :x-command)))
         (and (proper-list-p command)
              (stringp (plist-get command :name))
              (not (equal "" (plist-get command :name)))))))


;; Requesting the commands.

(defun duet-rpc--server-is-ready (server)
  "Request the commands of SERVER, which is ready or has changed.
Only the daemon of this machine has any."
  (when (and (bound-and-true-p duet-rpc-mode)
             (eq server (duet-rpc--local-server))
             (duet-rpc--running-p server))
    (duet-rpc--refresh-commands)))

(defun duet-rpc--update-methods (server)
  "Request the descriptions of SERVER's methods, which have changed.
Without `duet-rpc-mode', they are needed only if there are workers."
  (if (and (bound-and-true-p duet-rpc-mode) (eq server (duet-rpc--local-server)))
      (duet-rpc--server-is-ready server)
    (when (and (duet-rpc--running-p server) (duet-rpc--router-p server))
      (ignore-error duet-rpc-error
        (duet-rpc--async-request server "rpc.discover" nil :buffer 'any
                                 :success-fn (lambda (answer)
                                               (duet-rpc--note-discovery server answer))
                                 :error-fn #'ignore :timeout-fn #'ignore)))))

(defun duet-rpc--refresh-commands (&optional announce)
  "Request the commands of this machine's daemon and define them.
If ANNOUNCE is non-nil, show a message about those that are new."
  (if duet-rpc--refreshing-commands
      (setq duet-rpc--refreshing-commands
            (if (or announce (eq duet-rpc--refreshing-commands 'announce)) 'announce 'again))
    (let* ((done (lambda (&optional answer)
                   (let ((again duet-rpc--refreshing-commands))
                     (setq duet-rpc--refreshing-commands nil)
                     (when (plist-get answer :methods)
                       (duet-rpc--discovered (append (plist-get answer :methods) nil)
                                             announce))
                     (when (memq again '(again announce))
                       (duet-rpc--refresh-commands (eq again 'announce))))))
           (fail (lambda (&optional _) (setq duet-rpc--refreshing-commands nil))))
      (condition-case err
          (let ((default-directory "/"))
            (setq duet-rpc--refreshing-commands t)
            ;; The daemon may be busy for as long as a method takes.
            (duet-rpc--async-request (duet-rpc--ensure-server) "rpc.discover" nil
                                     :buffer 'any :timeout 'none
                                     :success-fn done :error-fn fail :cancel-fn fail))
        (duet-rpc-error
         (funcall fail)
         (message "duet-rpc: the commands cannot be updated: %s" (cadr err)))))))

(defun duet-rpc--discovered (methods announce)
  "Define the commands in METHODS, the descriptions of all methods.
ANNOUNCE is as in `duet-rpc--refresh-commands'."
  (setf (duet-rpc--server-methods (duet-rpc--local-server)) methods)
  (when duet-rpc-mode
    (let* ((commands (cl-remove-if-not #'duet-rpc--command-p methods))
           (new (duet-rpc--define-commands commands)))
      (duet-rpc--keep-commands commands)
      (duet-rpc--watch-folder)
      (when (and announce new)
        (message "New: %s" (mapconcat #'duet-rpc--command-with-key new ", "))))))

(defun duet-rpc--command-with-key (symbol)
  "Return how to call the command SYMBOL, for a message."
  (concat (format "M-x %s" symbol)
          (when-let ((key (get symbol 'duet-rpc--key)))
            (format " (%s)" (key-description key)))))

(defun duet-rpc--look-for-new-commands ()
  "Request the commands if a file in the methods folder is new.
This does not start the daemon for commands that are known already."
  (when duet-rpc-mode
    (duet-rpc--watch-folder)
    (when (duet-rpc--new-files-p)
      (duet-rpc--refresh-commands))))

;; The folder is made, because it can be watched only if it exists.  It may be
;; removed and made again: whoever has read its files calls
;; `duet-rpc--watch-folder'.  Without file notifications, or when the system
;; has no more of them, the next call notices what is new.

(defvar duet-rpc--folder-watch nil
  "Descriptor of the watch on the methods folder, or nil.")

(defvar duet-rpc--folder-timer nil
  "Timer that requests the commands after a change of the methods folder.")

(defun duet-rpc--watch-folder ()
  "Watch the methods folder while `duet-rpc-mode' is on."
  (if duet-rpc-mode
      (unless (file-notify-valid-p duet-rpc--folder-watch)
        (setq duet-rpc--folder-watch
              (ignore-errors
                (let ((folder (duet-rpc--methods-folder (duet-rpc--local-server))))
                  (make-directory folder t)
                  (file-notify-add-watch
                   folder '(change) #'duet-rpc--folder-changed)))))
    (when duet-rpc--folder-watch
      (file-notify-rm-watch duet-rpc--folder-watch)
      (setq duet-rpc--folder-watch nil))))

(defun duet-rpc--folder-changed (event)
  "Request the commands soon if EVENT is about a file of methods.
What Emacs itself has saved it has requested already."
  (pcase-let ((`(,_ ,action . ,files) event))
    (when (and (not duet-rpc--folder-timer)
               (cl-some #'duet-rpc--new-method-file-p files)
               (not (eq action 'attribute-changed)))
      (setq duet-rpc--folder-timer
            (run-with-timer
             0.2 nil
             (lambda ()
               (setq duet-rpc--folder-timer nil)
               (when duet-rpc-mode
                 (duet-rpc--refresh-commands t))))))))

(defun duet-rpc--new-method-file-p (file)
  "Return non-nil if FILE is one of methods that Emacs has not just saved."
  (and (stringp file)
       (string-match-p "\\`[^.#].*\\.py\\'" (file-name-nondirectory file))
       (let ((buffer (find-buffer-visiting file)))
         (not (and buffer (verify-visited-file-modtime buffer))))))

(defun duet-rpc--new-files-p ()
  "Return non-nil if a file of methods is newer than the file of commands."
  (let ((kept (file-attribute-modification-time
               (file-attributes (duet-rpc--commands-file)))))
    (cl-some (lambda (file)
               (or (not kept)
                   (time-less-p kept (file-attribute-modification-time
                                      (file-attributes file)))))
             (ignore-errors
               (directory-files (duet-rpc--methods-folder (duet-rpc--local-server))
                                t "\\`[^.].*\\.py\\'")))))

(defun duet-rpc--after-save ()
  "Request the commands again if a file of methods has been saved."
  (when (and buffer-file-name
             (string-suffix-p ".py" buffer-file-name)
             (not (file-remote-p buffer-file-name))
             (or (file-in-directory-p buffer-file-name
                                      (duet-rpc--methods-folder (duet-rpc--local-server)))
                 (cl-some (lambda (method)
                            (equal buffer-file-name
                                   (plist-get (plist-get method :x-source) :file)))
                          (or (duet-rpc--server-methods (duet-rpc--local-server))
                              duet-rpc--kept-commands))))
    (duet-rpc--refresh-commands t)))


;; Defining them.

(defun duet-rpc--define-commands (methods)
  "Define the commands in METHODS, descriptions, and remove all others.
Return the symbols of those that are new."
  (let ((wanted nil) (new nil))
    (dolist (method methods)
      (let ((symbol (intern (plist-get (plist-get method :x-command) :name))))
        (cond
         ((assq symbol wanted)
          (duet-rpc--report-command
           method "there is another command %s (%s)" symbol
           (duet-rpc--source-place (cdr (assq symbol wanted)))))
         ((and (fboundp symbol) (not (duet-rpc--own-command-p symbol)))
          (duet-rpc--report-command
           method "the command %s is not defined, because Emacs has a function of that \
name; choose another with @command(name=...)" symbol))
         (t (push (cons symbol method) wanted)))))
    (dolist (symbol (hash-table-keys duet-rpc--commands))
      (unless (assq symbol wanted)
        (duet-rpc--remove-command symbol)))
    (setq wanted (nreverse wanted))
    (pcase-dolist (`(,symbol . ,method) wanted)
      (unless (gethash symbol duet-rpc--commands)
        (push symbol new))
      (duet-rpc--define-command symbol method))
    ;; A key may have gone from one command to another.
    (pcase-dolist (`(,symbol . ,method) wanted)
      (duet-rpc--unbind-old-key symbol method))
    (pcase-dolist (`(,symbol . ,method) wanted)
      (duet-rpc--bind-command symbol method))
    (nreverse new)))

(defun duet-rpc--own-command-p (symbol)
  "Return non-nil if the function SYMBOL is a command that was defined here."
  (and (gethash symbol duet-rpc--commands)
       (or (eq (symbol-function symbol) (get symbol 'duet-rpc--function))
           ;; Someone has advised it.
           (advice--p (symbol-function symbol)))))

(defun duet-rpc--define-command (symbol method)
  "Define SYMBOL as the command in METHOD, a description."
  (let ((known (gethash symbol duet-rpc--commands)))
    (puthash symbol method duet-rpc--commands)
    (unless (and known (equal known method) (fboundp symbol))
      (unless (and known (fboundp symbol))
        (let ((function (lambda () (interactive) (duet-rpc--call-command symbol))))
          (put symbol 'duet-rpc--function function)
          (defalias symbol function)))
      (put symbol 'function-documentation (duet-rpc--command-doc method))
      (put symbol 'command-modes (duet-rpc--command-modes method)))))

(defun duet-rpc--command-modes (method)
  "Return the major modes for which METHOD's command is, or nil for all."
  (mapcar #'intern (append (plist-get (plist-get method :x-command) :modes) nil)))

(defun duet-rpc--remove-command (symbol)
  "Remove the command SYMBOL and its key."
  (duet-rpc--unbind-command symbol)
  (when (and (fboundp symbol) (duet-rpc--own-command-p symbol))
    (fmakunbound symbol)
    (put symbol 'function-documentation nil)
    (put symbol 'command-modes nil))
  (remhash symbol duet-rpc--commands))

;; A key is bound in the global keymap, so that it never takes the place of
;; one in a mode's keymap.  The properties `duet-rpc--key' and
;; `duet-rpc--key-modes' of a command are the key that it has, and the modes
;; in which it has it, nil for all.

(defun duet-rpc--command-key (method)
  "Return the key of METHOD's command, the value of `kbd', or nil."
  (let* ((text (plist-get (plist-get method :x-command) :key))
         (known (assoc text duet-rpc--keys)))
    (cond (known (cdr known))
          ((stringp text)
           (let ((key (ignore-errors (kbd text))))
             (push (cons text key) duet-rpc--keys)
             key)))))

(defun duet-rpc--bind-command (symbol method)
  "Bind the key in METHOD to SYMBOL, unless it is bound otherwise."
  (let* ((text (plist-get (plist-get method :x-command) :key))
         (modes (duet-rpc--command-modes method))
         (key (duet-rpc--command-key method))
         (other (and key (duet-rpc--other-binding key symbol modes))))
    (cond
     ((not text))
     ((or (not key) (equal key "") (equal key []))
      (duet-rpc--report-command method "%s has no key: %S is not the name of a key"
                                symbol text))
     (other
      (duet-rpc--unbind-command symbol)
      (duet-rpc--report-command method "%s has no key: %s is bound to %s"
                                symbol text other))
     (t
      (condition-case err
          (progn
            (define-key global-map key
                        (if modes
                            `(menu-item "" nil
                                        :filter ,(lambda (_) (duet-rpc--command-on-key key)))
                          symbol))
            (put symbol 'duet-rpc--key key)
            (put symbol 'duet-rpc--key-modes modes))
        (error (duet-rpc--report-command method "%s has no key: %s" symbol
                                         (error-message-string err))))))))

(defun duet-rpc--commands-on-key (key)
  "Return the commands that have KEY in some modes."
  (cl-loop for symbol being the hash-keys of duet-rpc--commands
           when (and (equal key (get symbol 'duet-rpc--key))
                     (get symbol 'duet-rpc--key-modes))
           collect symbol))

(defun duet-rpc--command-on-key (key)
  "Return the command that has KEY in this buffer's major mode, or nil."
  (cl-loop for symbol in (duet-rpc--commands-on-key key)
           when (apply #'derived-mode-p (get symbol 'duet-rpc--key-modes))
           return symbol))

(defun duet-rpc--other-binding (key symbol modes)
  "Return what KEY is bound to if that is not SYMBOL, or nil.
Look in the global keymap, and in the keymaps of MODES.  Commands for
other modes than MODES may have the same key."
  (let* ((others (remq symbol (duet-rpc--commands-on-key key)))
         (taken (cl-loop for other in others
                         when (or (null modes)
                                  (cl-intersection modes (get other 'duet-rpc--key-modes)))
                         return other)))
    (if taken
        (symbol-name taken)
      (cl-loop
       for map in (cons global-map
                        (cl-loop for mode in modes
                                 for map = (intern-soft (format "%s-map" mode))
                                 when (and map (boundp map) (keymapp (symbol-value map)))
                                 collect (symbol-value map)))
       for found = (duet-rpc--binding map key)
       unless (or (memq found (cons nil others)) (eq found symbol)
                  (and (eq found 'prefix) (not (eq map global-map))))
       return (cond ((eq found 'prefix) "a command up to there")
                    ((keymapp found) "a prefix of other keys")
                    ((symbolp found) (symbol-name found))
                    (t "a function"))))))

(defun duet-rpc--binding (map key)
  "Return what KEY is bound to in MAP, or nil.
The value `prefix' means that the beginning of KEY is bound to a command."
  (let ((found (lookup-key map key)))
    (cond
     ;; The beginning is bound to a command, or not at all.
     ((numberp found) (and (lookup-key map (substring key 0 found)) 'prefix))
     ((and (keymapp found) (not (symbolp found)))
      (let ((empty t))
        (map-keymap (lambda (_ binding) (when binding (setq empty nil))) found)
        (unless empty found)))
     (t found))))

(defun duet-rpc--unbind-old-key (symbol method)
  "Unbind the key of the command SYMBOL unless it is the one in METHOD."
  (unless (and (equal (get symbol 'duet-rpc--key) (duet-rpc--command-key method))
               (equal (get symbol 'duet-rpc--key-modes) (duet-rpc--command-modes method)))
    (duet-rpc--unbind-command symbol)))

(defun duet-rpc--unbind-command (symbol)
  "Unbind the key of the command SYMBOL, if it still has it."
  (when-let ((key (get symbol 'duet-rpc--key)))
    (put symbol 'duet-rpc--key nil)
    (put symbol 'duet-rpc--key-modes nil)
    ;; It is nil where the key was for some modes, and no command has it now.
    (when (and (memq (lookup-key global-map key) (list symbol nil))
               (not (duet-rpc--commands-on-key key)))
      (define-key global-map key nil))))

(defun duet-rpc--source-place (method)
  "Return the file and line of METHOD, a description, as text."
  (let ((source (plist-get method :x-source)))
    (if (stringp (plist-get source :file))
        (format "%s:%s" (file-name-nondirectory (plist-get source :file))
                (plist-get source :line))
      (plist-get method :name))))

(defun duet-rpc--report-command (method format &rest args)
  "Show a problem with METHOD's command, FORMAT with ARGS, but only once."
  (let ((text (format "%s: %s" (duet-rpc--source-place method)
                      (apply #'format format args))))
    (unless (member text duet-rpc--reported-problems)
      (push text duet-rpc--reported-problems)
      (duet-rpc--log (duet-rpc--local-server) "%s" text)
      (duet-rpc--show-after-result (propertize text 'face 'warning)))))

(defun duet-rpc--command-doc (method)
  "Return the docstring of METHOD's command."
  (let* ((command (plist-get method :x-command))
         (text (duet-rpc--description-text method))
         (lines
          (cl-loop
           for param across (vconcat (plist-get method :params))
           for name = (plist-get param :name)
           for source = (plist-get (plist-get command :sources) (duet-rpc--keyword name))
           for schema = (plist-get param :schema)
           for what = (plist-get schema :description)
           collect (format "  %s: %s" name
                           (cond
                            ((and (stringp source) (cdr (assoc source duet-rpc--sources))))
                            ((consp source) (format "the value of %s" (plist-get source :lisp)))
                            (t (concat (duet-rpc--type-name schema) ", read in the minibuffer"
                                       (and what (concat ".  " what))))))))
         (doc (concat (if (string-blank-p text)
                          (format "Call the Python function %s." (plist-get method :name))
                        (string-trim text))
                      (and lines (concat "\n\nParameters:\n" (string-join lines "\n"))))))
    ;; Nothing in it is a key binding or a quoted symbol.
    (replace-regexp-in-string "[\\`']" (lambda (found) (concat "\\=" found)) doc t t)))

(defun duet-rpc--describe-command (symbol)
  "Insert where the command SYMBOL is defined, for `describe-function'."
  (when-let ((method (gethash symbol duet-rpc--commands))
             (source (plist-get method :x-source)))
    (insert (format "  This is the Python function `%s', defined in " (plist-get method :name)))
    (insert-text-button (format "%s:%s" (plist-get source :file) (plist-get source :line))
                        'type 'duet-rpc-place
                        'duet-rpc-file (plist-get source :file)
                        'duet-rpc-line (plist-get source :line))
    (insert ".\n")))


;; Calling them.

(defun duet-rpc--call-command (symbol)
  "Call the method of the command SYMBOL."
  (let* ((method (or (gethash symbol duet-rpc--commands)
                     (user-error "%s is not defined any more" symbol)))
         (command (plist-get method :x-command))
         (modes (duet-rpc--command-modes method))
         (remote (eq t (plist-get command :remote)))
         ;; A method runs on this machine, whatever the buffer's host is.
         (directory (if (or remote (not (file-remote-p default-directory)))
                        default-directory
                      (expand-file-name "~/")))
         (sources (duet-rpc--command-sources method (not remote)))
         (how (intern (or (plist-get command :result) "auto"))))
    (when (and modes (not (apply #'derived-mode-p modes)))
      (user-error "%s is for %s" symbol (mapconcat #'symbol-name modes ", ")))
    (unless (memq how '(auto message insert replace buffer edit stream none))
      (user-error "%s: unknown result %s; is duet-rpc.pyz newer than duet-rpc.el?"
                  symbol how))
    (let ((default-directory directory))
      (duet-rpc--run (plist-get method :name)
                     (duet-rpc--command-params method (car sources))
                     how :label symbol :bounds (cdr sources)
                     :save-excursion (eq t (plist-get command :saveExcursion))
                     :review (eq t (plist-get command :review))))))

(defun duet-rpc--command-sources (method local)
  "Return (VALUES . BOUNDS) of the parameters of METHOD that have a source.
VALUES is an alist of their names and values, BOUNDS the part of the
buffer that is sent, if any.  LOCAL is as in `duet-rpc--source-value'."
  (let ((sources (plist-get (plist-get method :x-command) :sources))
        (values nil) (bounds nil))
    (mapc (lambda (param)
            (when-let ((source (plist-get sources (duet-rpc--keyword (plist-get param :name)))))
              (setq bounds (or bounds
                               (and (stringp source) (duet-rpc--source-bounds source))))
              (push (cons (plist-get param :name)
                          (duet-rpc--source-value
                           source (not (duet-rpc--required-p param)) local))
                    values)))
          (plist-get method :params))
    (cons values bounds)))

(defun duet-rpc--command-params (method values)
  "Return the parameters of METHOD as a plist.
VALUES is an alist of those that are known; read the others."
  (cl-loop for param across (vconcat (plist-get method :params))
           for name = (plist-get param :name)
           for known = (assoc name values)
           for value = (if known (cdr known) (duet-rpc--read-param param))
           unless (eq value 'omit)
           append (list (duet-rpc--keyword name) value)))


;;; Writing methods

;;;###autoload
(defun duet-rpc-new (name)
  "Create a file with a method NAME in the methods folder, and visit it.
It is a template that runs as it is.  Change it and save it: the next
call runs the new version."
  (interactive "sName of the new method: ")
  (when (string-blank-p name)
    (user-error "A method needs a name, such as word_count"))
  (duet-rpc--with-user-errors
    (let* ((server (duet-rpc--server))
           (file (car (last (split-string (duet-rpc--run-program server "new" name)
                                          "\n" t)))))
      (unless file
        (user-error "The program did not say which file it has created"))
      (find-file (concat (duet-rpc--server-host server) file))
      (if duet-rpc-mode
          (duet-rpc--refresh-commands t)
        (message "M-x duet-rpc-call RET %s calls it; with M-x duet-rpc-mode it is a command"
                 name)))))

;;;###autoload
(defun duet-rpc-reload ()
  "Load the files of your methods again, and update the commands in them.
This is rarely necessary: a file that has been saved is loaded again when
one of its methods is called."
  (interactive)
  (duet-rpc--load "reloadMethods" nil))

;;;###autoload
(defun duet-rpc-load-file (file)
  "Load the methods in FILE, a Python file, until the daemon exits.
Interactively, the default is the file that this buffer visits.  Offer to
save it if it has been modified."
  (interactive
   (list (read-file-name (format-prompt "Load methods from"
                                        (and buffer-file-name
                                             (file-name-nondirectory buffer-file-name)))
                         nil buffer-file-name t)))
  (setq file (expand-file-name file))
  (when-let ((buffer (find-buffer-visiting file)))
    (when (and (buffer-modified-p buffer)
               (y-or-n-p (format "Save %s first? " (file-name-nondirectory file))))
      (with-current-buffer buffer (save-buffer))))
  (let ((default-directory (file-name-directory file)))
    (duet-rpc--load "loadMethods" (list :file (file-local-name file)))))

(defun duet-rpc--load (method params)
  "Call METHOD, reloadMethods or loadMethods, with PARAMS; report the result."
  (let ((server (duet-rpc--server)))
    (duet-rpc--run method params (lambda (answer) (duet-rpc--report-loaded server answer)))))

(defun duet-rpc--report-loaded (server answer)
  "Show ANSWER, the result of SERVER's reloadMethods or loadMethods.
If there are several problems, show a list of them."
  (let* ((default-directory (duet-rpc--host-directory server))
         (methods (append (plist-get answer :methods) nil))
         (problems (append (plist-get answer :problems) nil))
         (loaded (format (if (= 1 (length methods)) "%d method loaded" "%d methods loaded")
                         (length methods))))
    (duet-rpc--server-is-ready server)
    (when problems
      (duet-rpc--list-problems server problems
                               (ignore-error duet-rpc-error (duet-rpc--described-methods))))
    (cond
     ((cdr problems)
      (display-buffer duet-rpc--problems-buffer)
      (message "%s; %s" loaded
               (propertize (format "%d problems" (length problems)) 'face 'error)))
     (problems
      (message "%s; %s%s" loaded (propertize (car problems) 'face 'error)
               (duet-rpc--next-error-hint)))
     (methods
      (message "%s: %s" loaded
               (truncate-string-to-width (string-join methods ", ") 200 nil nil "...")))
     (t (message "No methods in %s; M-x duet-rpc-new creates one"
                 (abbreviate-file-name (duet-rpc--methods-folder server)))))))


;;; Tools for AI clients

;; `duet-rpc mcp --emacs' reaches this Emacs through the socket of its
;; server, as emacsclient does, and evaluates (duet-rpc-serve-mcp TEXT).
;; An AI client chooses among the tools that are defined here and gives them
;; values of JSON; nothing that it sends is taken for a symbol or a form.
;; The other requests are those of the user's own methods, which may use
;; `ctx.emacs'.  Every call is shown.

(cl-defstruct (duet-rpc--lisp-tool (:constructor duet-rpc--make-lisp-tool) (:copier nil))
  "A function that AI clients may call."
  name function description
  params)                    ; a list of plists, as `tools' sends them

(defvar duet-rpc--tools nil
  "The tools for AI clients, in the order in which they were defined.")

(defvar duet-rpc--mcp-sessions nil
  "Alist of processes of `duet-rpc mcp' and the objects that each has.")

(defconst duet-rpc--mcp-sessions-max 8
  "The number of processes of `duet-rpc mcp' whose objects are kept.")

(defconst duet-rpc--ai-calls-buffer "*duet-rpc AI calls*"
  "The name of the buffer with the calls that AI clients have made.")

(defconst duet-rpc--ai-calls-max 200000
  "The number of characters of that buffer that are kept.")

;;;###autoload
(cl-defun duet-rpc-define-tool (function &key name description (params 'unknown))
  "Offer FUNCTION, a symbol, as a tool to AI clients.
They have it if they start `duet-rpc mcp --emacs' and this Emacs has a
server; see `server-start'.  FUNCTION is called in the buffer of the
selected window.

NAME is the tool's name, by default that of FUNCTION, with underscores.
DESCRIPTION says what it does, for the model that is to call it; by
default, FUNCTION's documentation does.

PARAMS describes the arguments.  Each is a list (NAME TYPE DESCRIPTION), of
which only NAME, a symbol, is required.  TYPE is `string' (the default),
`integer', `number', `boolean', `array' (which comes as a vector) or
`object' (as a plist), or a list of strings to choose from.  Arguments after
`&optional' may be left out and are then nil.  By default, PARAMS are the
arguments of FUNCTION, all of them strings.

    (duet-rpc-define-tool \\='my-grep
      :params \\='((regexp) &optional (where (\"project\" \"buffer\"))))"
  (declare (indent 1))
  (unless (and function (symbolp function))
    (error "`duet-rpc-define-tool' takes the name of a function, not %S" function))
  (unless (fboundp function)
    (error "%s is not a function yet; define it before it becomes a tool" function))
  (let* ((name (or name (string-replace "-" "_" (symbol-name function))))
         (params (if (eq params 'unknown)
                     (help-function-arglist function t)
                   params))
         (tool (duet-rpc--make-lisp-tool
                :name name :function function
                :description (or description (duet-rpc--function-text function))
                :params (duet-rpc--read-tool-params function params)))
         (old (cl-find name duet-rpc--tools :key #'duet-rpc--lisp-tool-name :test #'equal)))
    (unless (string-match-p "\\`[A-Za-z0-9_.-]\\{1,128\\}\\'" name)
      (error "%s: a tool's name has letters, digits, _, . and -; set :name" name))
    (setq duet-rpc--tools (if old
                              (cl-substitute tool old duet-rpc--tools)
                            (append duet-rpc--tools (list tool))))
    function))

(defun duet-rpc--function-text (function)
  "Return the documentation of FUNCTION without its list of arguments."
  (let ((text (or (documentation function) "")))
    (string-trim (or (cdr (help-split-fundoc text function)) text))))

(defun duet-rpc--read-tool-params (function params)
  "Return PARAMS, the :params of the tool FUNCTION, as they are sent."
  (let ((arity (func-arity function)) (optional nil) (read nil))
    (dolist (param params)
      (let* ((param (ensure-list param))
             (name (car param)) (type (or (nth 1 param) 'string)) (text (nth 2 param)))
        (cond
         ((eq name '&optional) (setq optional t))
         ((or (not (symbolp name)) (null name) (eq name '&rest))
          (error "%s: %S is not a parameter; write (NAME TYPE DESCRIPTION)" function param))
         ((not (or (memq type '(string integer number boolean array object))
                   (and (consp type) (cl-every #'stringp type))))
          (error "%s: the type of %s is %S; use string, integer, number, boolean, array, \
object or a list of strings" function name type))
         (t
          (push `(:name ,(symbol-name name)
                  :type ,(if (consp type) "string" (symbol-name type))
                  :enum ,(and (consp type) (vconcat type))
                  :description ,text :optional ,(if optional t :json-false))
                read)))))
    (unless (and (<= (car arity) (length read))
                 (or (symbolp (cdr arity)) (<= (length read) (cdr arity))))
      (error "%s takes %S arguments, but :params has %d" function arity (length read)))
    (nreverse read)))

(defun duet-rpc-serve-mcp (text)
  "Answer a request of `duet-rpc mcp --emacs'; return t.
TEXT is the name of a folder in base64.  The file \"request\" in it has the
request; the reply goes into the file \"reply\"."
  (let ((folder (decode-coding-string (base64-decode-string text) 'utf-8)))
    ;; An error would make server.el wait for 5 s.  There is one if the other
    ;; side has timed out and removed the folder.
    (when-let ((request (ignore-errors (duet-rpc--read-mcp-request folder))))
      (let ((reply (condition-case err
                       (duet-rpc--encode-json (duet-rpc--answer-mcp request) nil)
                     (error (duet-rpc--encode-json
                             (duet-rpc--refusal -32006 (error-message-string err)) nil))))
            (coding-system-for-write 'utf-8-unix))
        (ignore-errors
          (write-region reply nil (expand-file-name "reply" folder) nil 'silent nil 'excl)))))
  t)

(defun duet-rpc--read-mcp-request (folder)
  "Return the request in FOLDER, and remove its file."
  (let ((file (expand-file-name "request" folder)))
    (with-temp-buffer
      (insert-file-contents-literally file)
      (delete-file file)
      (decode-coding-region (point-min) (point-max) 'utf-8-unix)
      (goto-char (point-min))
      (duet-rpc--read-json))))

(defun duet-rpc--answer-mcp (request)
  "Return the reply to REQUEST, which `duet-rpc mcp --emacs' has made."
  (if (equal (plist-get request :method) "tools")
      (list :result (vconcat (mapcar (lambda (tool)
                                       (list :name (duet-rpc--lisp-tool-name tool)
                                             :description (duet-rpc--lisp-tool-description tool)
                                             :params (vconcat (duet-rpc--lisp-tool-params tool))))
                                     duet-rpc--tools)))
    (duet-rpc--show-ai-call request)
    (with-current-buffer (window-buffer (selected-window))
      ;; The result of a tool is text for a model, which keeps no objects.
      (let ((session (if (equal (plist-get request :method) "tool")
                         (duet-rpc--make-server)
                       (duet-rpc--mcp-session (plist-get request :session)))))
        (condition-case err
            (let ((inhibit-quit nil))
              (list :result (duet-rpc--run-for-mcp session request)))
          (quit (duet-rpc--log-ai-call "  quit")
                (duet-rpc--refusal -32005 "Declined: quit in Emacs"))
          (error
           (duet-rpc--log-ai-call (concat "  " (error-message-string err)))
           (duet-rpc--lisp-error-reply session err)))))))

(defun duet-rpc--run-for-mcp (session request)
  "Do what REQUEST of SESSION asks for; return the result as JSON in Lisp."
  (let ((params (plist-get request :params)))
    (pcase (plist-get request :method)
      ("tool" (duet-rpc--encode session (duet-rpc--call-tool params)))
      ("emacs/call" (duet-rpc--emacs-call session params))
      ("emacs/eval" (duet-rpc--emacs-eval session params))
      ("emacs/buffer" (duet-rpc--emacs-buffer session params))
      (method (error "Unknown request: %s" method)))))

(defun duet-rpc--call-tool (params)
  "Call the tool that PARAMS names with the arguments in it."
  (let ((tool (cl-find (plist-get params :name) duet-rpc--tools
                       :key #'duet-rpc--lisp-tool-name :test #'equal))
        (arguments (plist-get params :arguments)))
    (unless tool
      (error "There is no tool %s in this Emacs" (plist-get params :name)))
    (apply (duet-rpc--lisp-tool-function tool)
           (mapcar (lambda (param)
                     (duet-rpc--plain-value
                      (plist-get arguments (duet-rpc--keyword (plist-get param :name)))))
                   (duet-rpc--lisp-tool-params tool)))))

(defun duet-rpc--plain-value (value)
  "Return VALUE, JSON of an AI client, with nil for false.
It stays what it is: no part of it names an object of this Emacs."
  (cond
   ((eq value :json-false) nil)
   ((vectorp value) (vconcat (mapcar #'duet-rpc--plain-value value)))
   ((consp value) (mapcar #'duet-rpc--plain-value value))
   (t value)))

(defun duet-rpc--mcp-session (id)
  "Return the server for the objects of the session with ID."
  (let ((session (or (assoc id duet-rpc--mcp-sessions)
                     (cons id (duet-rpc--make-server :host "" :name "duet-rpc mcp")))))
    (setq duet-rpc--mcp-sessions
          (seq-take (cons session (delq session duet-rpc--mcp-sessions))
                    duet-rpc--mcp-sessions-max))
    (puthash nil (duet-rpc--make-call :origin (current-buffer))
             (duet-rpc--server-pending (cdr session)))
    (cdr session)))

;; What the user sees.

(defun duet-rpc--show-ai-call (request)
  "Show in the echo area what REQUEST does, and note it in a buffer."
  (let* ((params (plist-get request :params))
         (tool (equal (plist-get request :method) "tool"))
         (what (cond (tool "")
                     ((plist-get params :function) (format " (%s ...)" (plist-get params :function)))
                     (t (format " %s" (plist-get request :method)))))
         (text (format "%s calls %s%s" (plist-get request :client) (plist-get request :for) what)))
    (duet-rpc--log-ai-call
     (let ((print-escape-newlines t)
           (print-length 20))
       (format "%s %s" text
               (truncate-string-to-width
                (prin1-to-string (if tool (plist-get params :arguments) params))
                300 nil nil "..."))))
    (message "%s" text)))

(defun duet-rpc--log-ai-call (text)
  "Add TEXT to `duet-rpc--ai-calls-buffer'."
  (with-current-buffer (get-buffer-create duet-rpc--ai-calls-buffer)
    (unless (derived-mode-p 'special-mode)
      (special-mode))
    (let ((inhibit-read-only t))
      (save-excursion
        (goto-char (point-max))
        (insert (format-time-string "%F %T ") text "\n")
        (when (> (buffer-size) duet-rpc--ai-calls-max)
          (goto-char (- (point-max) (/ duet-rpc--ai-calls-max 2)))
          (forward-line)
          (delete-region (point-min) (point)))))))


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
  :interactive nil
  (setq tabulated-list-format [("Method" 24 t) ("Parameters" 24 t) ("Description" 0 t)])
  (tabulated-list-init-header)
  (add-hook 'tabulated-list-revert-hook #'duet-rpc--refresh-methods nil t))

(defvar-local duet-rpc--list-own nil
  "Non-nil if this list leaves out the built-in methods.")

(defun duet-rpc--refresh-methods ()
  "Update the entries of the list of methods."
  (setq tabulated-list-entries
        (mapcar (lambda (method)
                  (list method (vector (plist-get method :name)
                                       (duet-rpc--signature method)
                                       (or (plist-get method :summary) ""))))
                (duet-rpc--with-user-errors (duet-rpc--methods duet-rpc--list-own)))))

;;;###autoload
(defun duet-rpc-list-methods (&optional all)
  "List your methods on this buffer's host, and the tools of its backends.
With a prefix argument, or if ALL is non-nil, include the built-in ones.
In the list, \\<duet-rpc-methods-mode-map>\\[duet-rpc-methods-call] calls \
a method, \\[duet-rpc-methods-describe] describes it and
\\[duet-rpc-methods-find-source] visits its Python source."
  (interactive "P")
  (let ((directory default-directory)
        (buffer (get-buffer-create "*duet-rpc methods*")))
    (with-current-buffer buffer
      (duet-rpc-methods-mode)
      (setq default-directory directory
            duet-rpc--list-own (not all))
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
    (duet-rpc-call (plist-get method :name) (duet-rpc--read-params method))))

(defun duet-rpc-methods-describe ()
  "Describe the method on this line."
  (interactive nil duet-rpc-methods-mode)
  (duet-rpc--describe (duet-rpc--method-at-point)))

(defun duet-rpc-methods-find-source ()
  "Visit the Python source of the method on this line."
  (interactive nil duet-rpc-methods-mode)
  (duet-rpc--find-source (duet-rpc--method-at-point)))

(defun duet-rpc--describe (method)
  "Show METHOD, a description, in the help buffer."
  (require 'help-mode)
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
    (duet-rpc--visit-place (plist-get source :file) (plist-get source :line))))

;;;###autoload
(defun duet-rpc-show-log ()
  "Show the log of the daemon on this buffer's host.
It has the stderr of all workers and backends as well."
  (interactive)
  (pop-to-buffer (duet-rpc--log-buffer (duet-rpc--server)))
  (goto-char (point-max)))


;;; The list of backends

(defvar duet-rpc-backends-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "RET") #'duet-rpc-backends-call)
    (define-key map "c" #'duet-rpc-backends-call)
    (define-key map "r" #'duet-rpc-backends-restart)
    (define-key map "k" #'duet-rpc-backends-stop)
    (define-key map "s" #'duet-rpc-backends-stop)
    (define-key map "l" #'duet-rpc-backends-log)
    (define-key map "L" #'duet-rpc-show-log)
    map)
  "Keymap of `duet-rpc-backends-mode'.")

(defvar-local duet-rpc--backends nil
  "Alist of the backends in this list, (NAME . STATUS), from gateway/status.")

(defvar-local duet-rpc--refreshing nil
  "Non-nil while this list waits for gateway/status.
The value `again' means to request it once more after that.")

(define-derived-mode duet-rpc-backends-mode tabulated-list-mode "duet-rpc backends"
  "Major mode for the list of workers and other servers.

\\{duet-rpc-backends-mode-map}"
  :interactive nil
  (cl-flet ((by (key)
              (lambda (one other)
                (cl-flet ((value (entry)
                            (let ((status (cdr (assoc (car entry) duet-rpc--backends))))
                              (or (plist-get status key) 0))))
                  (< (value one) (value other))))))
    (setq tabulated-list-format
          `[("Name" 14 t)
            ("Kind" 8 t)
            ("State" 8 t)
            ("PID" 7 ,(by :pid) :right-align t)
            ("Pending" 7 ,(by :pending) :right-align t)
            ("Restarts" 8 ,(by :restarts) :right-align t)
            ("Up" 9 ,(by :uptime) :right-align t :pad-right 2)
            ("Running" 24 t)
            ("Environment" 30 t)
            ("Reason" 0 t)]
          tabulated-list-padding 1
          mode-line-process
          '(:eval (format ":%s" (duet-rpc--server-state (duet-rpc--server))))))
  (tabulated-list-init-header)
  (add-hook 'tabulated-list-revert-hook #'duet-rpc--update-backends nil t)
  (add-hook 'window-buffer-change-functions
            (lambda (window)
              (with-current-buffer (window-buffer window)
                (duet-rpc--refresh-backends-soon (duet-rpc--server))))
            nil t))

;;;###autoload
(defun duet-rpc-backends ()
  "List the workers and other servers on this buffer's host.
The list is updated whenever the state of one changes, and by
\\<duet-rpc-backends-mode-map>\\[revert-buffer].

In it, \\[duet-rpc-backends-call] calls a method or a tool,
\\[duet-rpc-backends-restart] restarts a process, \
\\[duet-rpc-backends-stop] stops it,
\\[duet-rpc-backends-log] shows the end of its stderr,
and \\[duet-rpc-show-log] the log of all of them."
  (interactive)
  (let* ((directory default-directory)
         (buffer (get-buffer-create (duet-rpc--backends-name (duet-rpc--server)))))
    (with-current-buffer buffer
      (unless (derived-mode-p 'duet-rpc-backends-mode)
        (duet-rpc-backends-mode))
      (setq default-directory directory)
      (revert-buffer))
    (pop-to-buffer buffer)
    (unless duet-rpc--backends
      (message "No workers and no backends: all methods run in the daemon.  A file of \
methods with a \"# /// script\" block gets a worker, a table [backends.NAME] with a \
command in ~/.config/duet-rpc/config.toml adds another server"))))

(defun duet-rpc--backends-name (server)
  "Return the name of the buffer for the list of SERVER's backends."
  (format "*duet-rpc backends%s*"
          (if (equal (duet-rpc--server-host server) "")
              ""
            (concat " " (duet-rpc--server-host server)))))

(defun duet-rpc--update-backends ()
  "Request gateway/status and update the entries of this list."
  (duet-rpc--set-backends
   (duet-rpc--with-user-errors
     (condition-case err
         (duet-rpc-request "gateway/status")
       ;; A daemon that has none does not know the method.
       (duet-rpc-error
        (unless (eql -32601 (duet-rpc-error-code err))
          (signal (car err) (cdr err))))))))

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
                           (plist-get status :kind)
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
                           (duet-rpc--running-text status)
                           (if (equal (plist-get status :kind) "worker")
                               (abbreviate-file-name (or (plist-get status :python) ""))
                             (format "%s, %s" (plist-get status :dialect)
                                     (plist-get status :framing)))
                           (duet-rpc--first-line (plist-get status :reason))))))
         duet-rpc--backends)))

(defun duet-rpc--running-text (status)
  "Return a text about the method that is running according to STATUS."
  (let ((running (plist-get status :running))
        (queued (or (plist-get status :queued) 0)))
    (concat (and running
                 (format "%s %ds" (plist-get running :method)
                         (floor (plist-get running :seconds))))
            (and (< 0 queued) (format " +%d" queued)))))

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
  "Show all backends of SERVER as gone if it is not running.
When it is ready again, the reply to its first call updates the list."
  (when-let (((memq (duet-rpc--server-state server) '(stopped waiting failed)))
             (buffer (get-buffer (duet-rpc--backends-name server))))
    (with-current-buffer buffer
      (dolist (each duet-rpc--backends)
        (setcdr each `(:state "gone" :pid nil :pending 0 :running nil :queued 0
                       ,@(cdr each))))
      (duet-rpc--make-backend-entries)
      (duet-rpc--print-backends))))

(defun duet-rpc--backend-at-point ()
  "Return the name of the backend on this line."
  (or (tabulated-list-get-id) (user-error "No backend on this line")))

(defun duet-rpc-backends-call ()
  "Call a method of the worker, or a tool of the backend, on this line."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--with-user-errors
    (let* ((name (duet-rpc--backend-at-point))
           (all (duet-rpc--methods))
           (worker (cl-remove-if-not
                    (lambda (each) (equal name (plist-get each :x-worker))) all))
           (tools (cl-remove-if-not
                   (lambda (each)
                     (string-prefix-p (concat name "__") (plist-get each :name)))
                   all))
           (method (duet-rpc--read-method "Call: " (or worker tools)
                                          (unless worker
                                            (concat name (if tools "__" "/"))))))
      (duet-rpc-call (plist-get method :name) (duet-rpc--read-params method)))))

(defun duet-rpc-backends-restart ()
  "Restart the worker or backend on this line."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--request-for-backend "gateway/restart" "%s is restarting"))

(defun duet-rpc-backends-stop ()
  "Stop the worker or backend on this line, until the next call to it."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--request-for-backend "gateway/stop"
                                 "%s stopped; the next call starts it again"))

(defun duet-rpc--request-for-backend (method done)
  "Call METHOD for the backend on this line.
Then show the message DONE, a format string for the backend's name."
  (let ((name (duet-rpc--backend-at-point)))
    (duet-rpc--with-user-errors
      (duet-rpc-request method (list :backend name)))
    (message done name)))

(defun duet-rpc-backends-log ()
  "Show the end of stderr of the backend on this line."
  (interactive nil duet-rpc-backends-mode)
  (duet-rpc--show-backend-stderr (duet-rpc--backend-at-point)))

(defun duet-rpc--show-backend-stderr (name)
  "Show the end of stderr of the backend NAME."
  (let ((lines (plist-get (duet-rpc--with-user-errors
                            (duet-rpc-request "gateway/log" (list :backend name)))
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


;;; Language servers for eglot

;; A connection of eglot to a backend is a class of its own: what eglot sends
;; goes to the daemon as NAME/method, and what the backend sends comes from
;; there.  Its process is a pipe that transmits nothing.  When the backend
;; exits, the pipe is deleted: eglot then connects again, by its own rules
;; (`eglot-autoreconnect'), and so initializes the new server.

;;;###autoload
(defun duet-rpc-eglot (modes backend)
  "Make eglot use BACKEND, a language server of duet-rpc, for MODES.
MODES is a major mode or a list of them, as in `eglot-server-programs'.
BACKEND is its name in the configuration of duet-rpc, a string.  Put this
into your init file:

    (with-eval-after-load \\='eglot (duet-rpc-eglot \\='python-mode \"py\"))"
  (require 'eglot)
  (duet-rpc--define-eglot-server)
  (add-to-list 'eglot-server-programs
               `(,modes duet-rpc--eglot-server
                        :backend ,backend
                        :process ,(lambda () (duet-rpc--eglot-process backend)))))

(defun duet-rpc--define-eglot-server ()
  "Define the class `duet-rpc--eglot-server'."
  (defclass duet-rpc--eglot-server (eglot-lsp-server)
    ((backend :initarg :backend)
     (calls :initform (make-hash-table)) ; by the id that eglot has given each
     (initialized :initform nil))        ; non-nil until the backend's process exits
    :documentation "A connection of eglot to a backend of duet-rpc.")

  (cl-defmethod jsonrpc-connection-send ((connection duet-rpc--eglot-server) &rest args)
    "Send ARGS, a request or a notification, to the backend of CONNECTION."
    (apply #'duet-rpc--eglot-send connection args)))

(defun duet-rpc--eglot-process (backend)
  "Return a process for a connection of eglot to BACKEND of the current host."
  (let* ((server (duet-rpc--ensure-server))
         (other (cdr (assoc backend (duet-rpc--server-eglot server)))))
    (when (and other (jsonrpc-running-p other) (slot-value other 'initialized))
      (user-error "%s already serves another project.  M-x eglot-shutdown there first, or \
add a backend with another name" backend))
    (let ((process (make-pipe-process :name (format "duet-rpc eglot %s" backend)
                                      :noquery t)))
      (process-put process 'duet-rpc-server server)
      process)))

(cl-defun duet-rpc--eglot-send (connection &key id method params &allow-other-keys)
  "Send the request METHOD with PARAMS to the backend of CONNECTION.
ID is the one that eglot has given it; without one, it is a notification."
  (let* ((process (jsonrpc--process connection))
         (server (process-get process 'duet-rpc-server))
         (name (string-remove-prefix ":" (format "%s" method)))
         (topic (format "%s/%s" (slot-value connection 'backend) name))
         (calls (slot-value connection 'calls))
         (reply (lambda (&rest members)
                  (remhash id calls)
                  (jsonrpc-connection-receive connection `(:id ,id ,@members)))))
    (cond
     ((equal name "$/cancelRequest")
      (when-let ((call (gethash (plist-get params :id) calls)))
        (duet-rpc-cancel call)))
     (id
      (when (equal name "initialize")
        (duet-rpc--eglot-connect server connection))
      (puthash id
               (duet-rpc--async-request
                server topic params :buffer 'any :timeout 'none
                :success-fn (lambda (result)
                              (when (equal name "initialize")
                                (setf (slot-value connection 'initialized) t))
                              (funcall reply :result result))
                :error-fn (lambda (err) (funcall reply :error err)))
               calls))
     (t
      (duet-rpc--notify server topic params)
      (when (equal name "exit")
        (delete-process process)
        ;; Some servers rely on being killed.
        (duet-rpc--request-for-eglot server connection "gateway/stop"))))))

(defun duet-rpc--eglot-connect (server connection)
  "Let CONNECTION of eglot have what its backend of SERVER sends.
A process that has been initialized before cannot be used again."
  (let* ((backend (slot-value connection 'backend))
         (other (cdr (assoc backend (duet-rpc--server-eglot server))))
         (status (cdr (assoc backend (duet-rpc--server-backends server)))))
    (setf (alist-get backend (duet-rpc--server-eglot server) nil nil #'equal) connection)
    (when (or (and other (slot-value other 'initialized))
              (equal (plist-get status :state) "stopping"))
      (duet-rpc--request-for-eglot server connection "gateway/restart"))))

(defun duet-rpc--request-for-eglot (server connection method)
  "Send SERVER the request METHOD about the backend of CONNECTION."
  (duet-rpc--async-request server method
                           (list :backend (slot-value connection 'backend))
                           :success-fn #'ignore))

(defun duet-rpc--eglot-handler (server topic slot)
  "Return the function with which eglot handles TOPIC from SERVER, or nil.
SLOT is that of the function in a connection."
  (let ((words (split-string (format "%s" topic) "/")))
    (when-let ((connection (cdr (assoc (car words) (duet-rpc--server-eglot server))))
               (function (slot-value connection slot)))
      (lambda (params)
        (funcall function connection (intern (string-join (cdr words) "/")) params)))))

(defun duet-rpc--close-eglot (server connection)
  "Tell eglot that the backend of CONNECTION, if there is one, has exited.
If the user has stopped SERVER, do not connect again."
  (when (and connection (slot-value connection 'initialized))
    (setf (slot-value connection 'initialized) nil)
    (duet-rpc--run-soon
     (lambda ()
       (when (eq (duet-rpc--server-state server) 'stopped)
         (setf (slot-value connection 'shutdown-requested) t))
       (delete-process (jsonrpc--process connection))))))


;;; Installing the program

(defvar duet-rpc-release-url
  "https://github.com/duet-rpc/duet-rpc/releases/download/v%s/"
  "URL of the directory with the files of a release; %s is its version.")

;;;###autoload
(defun duet-rpc-install ()
  "Install the program, in the version that this library needs.
Ask first, and return nil if the answer is no.  Then try these ways until
one works, while Emacs remains usable: download it from the release and
compare its checksum; `uv tool install' or `pipx install', if there is
such a program; build it, if this library is part of the sources."
  (interactive)
  (when duet-rpc-program
    (user-error "The option `duet-rpc-program' is %S; set it to nil to use a program \
that is installed" duet-rpc-program))
  (let ((ways (duet-rpc--install-ways)))
    (when (y-or-n-p (format "Install duet-rpc %s (%s)? " duet-rpc--version
                            (mapconcat #'car ways ", or else ")))
      (with-current-buffer (generate-new-buffer "*duet-rpc install*")
        (special-mode)
        (setq header-line-format " Installing duet-rpc; kill this buffer to stop it")
        (display-buffer (current-buffer))
        (duet-rpc--install ways)
        t))))

(defun duet-rpc--install-ways ()
  "Return an alist (DESCRIPTION . FUNCTION) of the ways to install the program.
FUNCTION is called in the buffer for the progress, with a function
to call when it is done: with nil, or a text that says why it has failed."
  (let* ((package (format "duet-rpc==%s" duet-rpc--version))
         (home (expand-file-name "~/"))
         ;; Some package managers compile beside a link to the source.
         (el (and duet-rpc--file (concat (file-name-sans-extension duet-rpc--file) ".el")))
         (sources (and el (expand-file-name
                           "../" (file-name-directory (file-truename el)))))
         (run (lambda (directory &rest command)
                (cons (string-join command " ")
                      (lambda (then) (duet-rpc--install-run directory command then))))))
    `(("download it" . duet-rpc--install-download)
      ,@(cond ((executable-find "uv") (list (funcall run home "uv" "tool" "install" package)))
              ((executable-find "pipx")
               (list (funcall run home "pipx" "install" "--force" package))))
      ,@(when (and sources
                   (file-exists-p (expand-file-name "packaging/build.py" sources))
                   (executable-find "make"))
          (list (funcall run sources "make" "pyz"))))))

(defun duet-rpc--install (ways &optional problems)
  "Try WAYS to install the program, one after the other.
PROBLEMS says why those before them have failed."
  (if (null ways)
      (duet-rpc--install-end "duet-rpc is not installed: %s" (string-join problems "; "))
    (pcase-let ((`(,name . ,way) (car ways))
                (server (duet-rpc--local-server)))
      (duet-rpc--install-show "* %s\n" name)
      (funcall way
               (lambda (problem &rest _)
                 (condition-case err
                     (if problem
                         (signal 'duet-rpc-error (list problem))
                       (duet-rpc--restart server)
                       (duet-rpc--install-check server))
                   (duet-rpc-error
                    (duet-rpc--install-show "%s\n\n" (cadr err))
                    (duet-rpc--install (cdr ways)
                                       `(,@problems ,(duet-rpc--first-line (cadr err)))))))))))

(defun duet-rpc--install-check (server)
  "Report the version of SERVER, which has just been installed."
  (let ((fail (lambda (&optional err)
                (duet-rpc--install-end "duet-rpc is installed, but does not answer: %s"
                                       (or (plist-get err :message) "timeout")))))
    (duet-rpc--async-request
     server "version" nil :error-fn fail :timeout-fn fail
     :success-fn (lambda (answer)
                   (duet-rpc--install-end
                    "duet-rpc %s is installed and running: %s" (plist-get answer :version)
                    (abbreviate-file-name (duet-rpc--find-program server)))))))

(defun duet-rpc--install-end (format &rest args)
  "Show the outcome of an installation, FORMAT with ARGS."
  (setq header-line-format nil)
  (duet-rpc--install-show "%s\n" (apply #'format format args))
  (message "%s" (apply #'format format args)))

(defun duet-rpc--install-show (format &rest args)
  "Append FORMAT with ARGS to this buffer, the one for the progress."
  (let ((inhibit-read-only t))
    (save-excursion
      (goto-char (point-max))
      ;; A window that shows the end goes on doing so.
      (insert-before-markers (apply #'format format args)))))

(defun duet-rpc--install-run (directory command then)
  "Run COMMAND in DIRECTORY, and show its output in this buffer.
Then call THEN with nil, or with a text if it has failed, and its output."
  (let ((buffer (current-buffer))
        (default-directory directory)
        (output ""))
    (condition-case err
        (make-process
         :name "duet-rpc install" :buffer buffer :command command :noquery t
         :connection-type 'pipe :coding 'utf-8-unix
         :filter (lambda (_ text)
                   (setq output (concat output text))
                   (duet-rpc--call-in-buffer buffer #'duet-rpc--install-show "%s" text))
         :sentinel (lambda (process event)
                     (unless (process-live-p process)
                       (duet-rpc--call-in-buffer
                        buffer then
                        (unless (equal event "finished\n")
                          (format "%s: %s" (string-join command " ") (string-trim event)))
                        (string-trim output)))))
      (file-error (funcall then (error-message-string err))))))

(defun duet-rpc--install-download (then)
  "Download the program of the same release as this library, and check it.
THEN is as in `duet-rpc--install-ways'."
  (let ((base (format duet-rpc-release-url duet-rpc--version)))
    (duet-rpc--fetch
     (concat base "SHA256SUMS")
     (lambda (problem sums)
       (if (or problem
               (not (string-match "^\\([0-9a-f]\\{64\\}\\)  duet-rpc\\.pyz$" sums)))
           (funcall then (or problem (format "%sSHA256SUMS does not have duet-rpc.pyz" base)))
         (let ((sum (match-string 1 sums)))
           (duet-rpc--fetch
            (concat base "duet-rpc.pyz")
            (lambda (problem data)
              (cond
               (problem (funcall then problem))
               ((not (equal sum (secure-hash 'sha256 data)))
                (funcall then (format "%sduet-rpc.pyz (%d bytes) does not have the checksum \
in SHA256SUMS; it is incomplete, or not what was released" base (length data))))
               (t (duet-rpc--install-data data then)))))))))))

(defun duet-rpc--install-data (data then)
  "Install DATA, the contents of duet-rpc.pyz, if it fits this library.
THEN is as in `duet-rpc--install-ways'."
  (let* ((file (make-temp-file "duet-rpc" nil ".pyz"))
         (clean-up (lambda () (when (file-exists-p file) (delete-file file))))
         (end (lambda (problem)
                (funcall clean-up)
                (funcall then problem))))
    (add-hook 'kill-buffer-hook clean-up nil t)
    (condition-case err
        (let ((coding-system-for-write 'no-conversion))
          (write-region data nil file nil 'quiet)
          (set-file-modes file #o755)
          (duet-rpc--install-run
           default-directory (list duet-rpc-python file "version")
           (lambda (problem &optional output)
             (funcall end
                      (cond (problem)
                            ((equal output duet-rpc--version) (duet-rpc--install-file file))
                            (t (format "The release's duet-rpc.pyz is version %s, not %s"
                                       output duet-rpc--version)))))))
      (file-error (funcall end (error-message-string err))))))

(defun duet-rpc--install-file (file)
  "Copy FILE, the program, to the first place that the user may write to.
Return nil, or a text that says why there is none."
  (let ((problems nil))
    (unless (cl-loop
             for directory in (list (file-name-directory (or duet-rpc--file "/"))
                                    (file-name-directory (locate-user-emacs-file "x")))
             thereis (condition-case err
                         (progn
                           (duet-rpc--copy-file
                            file (expand-file-name "duet-rpc.pyz" directory))
                           t)
                       (file-error (push (error-message-string err) problems) nil)))
      (string-join (nreverse problems) "; "))))

;; A download: its URL, the buffer that shows its progress, the function to
;; call at its end, the buffer of url.el that it comes into, the timer that
;; watches it, how many bytes have come, and when the last of them came.
(cl-defstruct (duet-rpc--download (:constructor duet-rpc--make-download) (:copier nil))
  url shown-in then source timer (size 0) (changed (float-time)))

(defun duet-rpc--fetch (url then)
  "Download URL, and show the progress in the header line of this buffer.
Call THEN with nil and the contents, or with a text that says why there
are none.  Give up when nothing has come for `duet-rpc-timeout' seconds."
  (duet-rpc--install-show "%s\n" url)
  (require 'url)
  (let ((download (duet-rpc--make-download
                   :url url :shown-in (current-buffer) :then then)))
    (condition-case err
        (let ((source (url-retrieve
                       url (lambda (status) (duet-rpc--download-finish download status))
                       nil t t)))
          (when (buffer-live-p source)
            (setf (duet-rpc--download-source download) source
                  (duet-rpc--download-timer download)
                  (run-with-timer 0.5 0.5 #'duet-rpc--download-watch download))))
      (error (duet-rpc--download-end
              download (format "%s: %s" url (error-message-string err)))))))

(defun duet-rpc--download-finish (download status)
  "End DOWNLOAD, which has come into this buffer; STATUS is that of `url-retrieve'."
  (setf (duet-rpc--download-source download) (current-buffer))
  (goto-char (point-min))
  (if-let ((err (plist-get status :error)))
      (duet-rpc--download-end
       download (format "%s: %s" (duet-rpc--download-url download)
                        (mapconcat (lambda (each) (format "%s" each)) (cdr err) " ")))
    (re-search-forward "^\r?\n" nil 'move)
    (duet-rpc--download-end download nil (buffer-substring (point) (point-max)))))

(defun duet-rpc--download-end (download problem &optional data)
  "Release what DOWNLOAD has, and call its function with PROBLEM and DATA."
  (when (duet-rpc--download-timer download)
    (cancel-timer (duet-rpc--download-timer download)))
  (setf (duet-rpc--download-timer download) nil)
  (when (buffer-live-p (duet-rpc--download-source download))
    (let ((kill-buffer-query-functions nil))
      (kill-buffer (duet-rpc--download-source download))))
  (duet-rpc--call-in-buffer (duet-rpc--download-shown-in download)
                            (duet-rpc--download-then download) problem data))

(defun duet-rpc--download-watch (download)
  "Show how much of DOWNLOAD has come; end it if nothing has come for long."
  (let ((source (duet-rpc--download-source download)))
    (when (buffer-live-p source)
      (setq source (or (buffer-local-value 'url-redirect-buffer source) source))
      (setf (duet-rpc--download-source download) source))
    (cond
     ((not (buffer-live-p (duet-rpc--download-shown-in download)))
      (duet-rpc--download-end download nil))
     ((and (buffer-live-p source)
           (/= (duet-rpc--download-size download) (buffer-size source)))
      (setf (duet-rpc--download-size download) (buffer-size source)
            (duet-rpc--download-changed download) (float-time))
      (duet-rpc--download-show download))
     ((> (- (float-time) (duet-rpc--download-changed download)) duet-rpc-timeout)
      (duet-rpc--download-end
       download (format "%s: nothing has come for %s s"
                        (duet-rpc--download-url download) duet-rpc-timeout))))))

(defun duet-rpc--download-show (download)
  "Show in the header line how much of DOWNLOAD has come."
  (with-current-buffer (duet-rpc--download-shown-in download)
    (setq header-line-format
          (format " Downloading, %s so far; kill this buffer to stop it"
                  (file-size-human-readable (duet-rpc--download-size download))))
    (force-mode-line-update)))


;;; The doctor

;; The program's own checks are those of `duet-rpc doctor' in a terminal.
;; What only Emacs knows is added as checks of the same form: plists of
;; `:name', `:status', `:detail' and `:fix'.

(defvar-local duet-rpc--program-checks nil
  "Checks of the program in this buffer, a list of plists.")

(defvar-local duet-rpc--emacs-checks nil
  "Checks of this Emacs in this buffer, a list of plists.")

(defconst duet-rpc--marks
  '(("ok" "✓" success) ("warn" "!" warning) ("fail" "✗" error) ("pending" "…" shadow))
  "Mark and face of each status of a check.")

(defvar duet-rpc-doctor-mode-map
  (let ((map (make-sparse-keymap)))
    (define-key map (kbd "TAB") #'forward-button)
    (define-key map (kbd "<backtab>") #'backward-button)
    map)
  "Keymap of `duet-rpc-doctor-mode'.")

(define-derived-mode duet-rpc-doctor-mode special-mode "duet-rpc doctor"
  "Major mode for the doctor's report.
\\<duet-rpc-doctor-mode-map>\\[revert-buffer] runs the checks again; files \
and lines in the report are links.

\\{duet-rpc-doctor-mode-map}"
  :interactive nil
  (setq-local revert-buffer-function (lambda (&rest _) (duet-rpc-doctor))
              word-wrap t
              wrap-prefix (make-string 15 ?\s)))

;;;###autoload
(defun duet-rpc-doctor ()
  "Check what duet-rpc needs and say how to fix what does not work.
The report has the lines of the command `duet-rpc doctor', and what only
this Emacs knows.  Results that take time to find out are filled in later."
  (interactive)
  (let* ((server (duet-rpc--server))
         (local (equal (duet-rpc--server-host server) ""))
         (directory default-directory)
         (buffer (get-buffer-create "*duet-rpc doctor*")))
    (with-current-buffer buffer
      (duet-rpc-doctor-mode)
      (setq default-directory directory)
      (setq duet-rpc--program-checks
            '((:name "program" :status "pending" :detail "is running its own checks"))
            duet-rpc--emacs-checks
            (mapcar (lambda (name) (list :name name :status "pending" :detail ""))
                    '("Emacs" "jsonrpc.el" "duet-rpc.el" "load path" "command" "options"
                      "daemon" "methods" "backends" "stderr")))
      (duet-rpc--doctor-check-emacs)
      (let ((invalid (duet-rpc--invalid-option))
            (away (unless (or local (duet-rpc--running-p server))
                    ;; Connecting to another host may take long or need a password.
                    "not running; call a method first")))
        (cond
         (invalid
          (duet-rpc--doctor-set "options" "fail" invalid "correct it, then type g here")
          (duet-rpc--doctor-skip server "unknown while an option is invalid"))
         (away (duet-rpc--doctor-skip server away))
         (t
          (duet-rpc--doctor-check-program server)
          (condition-case err
              (progn
                (duet-rpc--ensure-server)
                (duet-rpc--doctor-check-daemon server))
            (duet-rpc-error (duet-rpc--doctor-report-failure server (cadr err)))))))
      (goto-char (point-min)))
    (pop-to-buffer buffer)))

(defun duet-rpc--doctor-set (name status detail &optional fix)
  "Set the check NAME of this Emacs to STATUS, with DETAIL and FIX."
  (let ((check (list :name name :status status :detail (string-trim detail) :fix fix)))
    (setq duet-rpc--emacs-checks
          (mapcar (lambda (each) (if (equal (plist-get each :name) name) check each))
                  duet-rpc--emacs-checks))
    (duet-rpc--doctor-print)))

(defun duet-rpc--doctor-skip (server why)
  "Leave out what needs SERVER, and report WHY."
  (duet-rpc--doctor-set-program "warn" why)
  (dolist (name '("command" "methods" "backends"))
    (duet-rpc--doctor-set name "ok" "unknown"))
  (duet-rpc--doctor-set "daemon" "warn"
                        (format "%s: %s" (duet-rpc--server-state server) why))
  (duet-rpc--doctor-report-stderr server))

(defun duet-rpc--doctor-print ()
  "Write the report in this buffer again, and keep point."
  (let ((inhibit-read-only t)
        (line (line-number-at-pos))
        (checks (append duet-rpc--program-checks duet-rpc--emacs-checks)))
    (erase-buffer)
    (insert "duet-rpc doctor, " (format-time-string "%F %T") "\n\n")
    (mapc #'duet-rpc--doctor-print-check duet-rpc--program-checks)
    (insert "\nIn this Emacs:\n")
    (mapc #'duet-rpc--doctor-print-check duet-rpc--emacs-checks)
    (cl-flet ((count (status)
                (cl-count status checks :test #'equal
                          :key (lambda (each) (plist-get each :status))))
              (plural (number what)
                (format (if (= number 1) "%d %s" "%d %ss") number what)))
      (insert "\n"
              (cond
               ((< 0 (count "pending")) "still checking ...")
               ((= 0 (count "fail") (count "warn")) "no problems found")
               (t (concat (plural (count "fail") "failure") ", "
                          (plural (count "warn") "warning"))))
              "\n"))
    (duet-rpc--make-file-links)
    (duet-rpc--make-links (point-min) (point-max))
    (set-buffer-modified-p nil)
    (goto-char (point-min))
    (forward-line (1- line))))

(defun duet-rpc--doctor-print-check (check)
  "Insert CHECK as `duet-rpc doctor' prints it."
  (pcase-let ((`(,mark ,face) (cdr (or (assoc (plist-get check :status) duet-rpc--marks)
                                       (assoc "warn" duet-rpc--marks))))
              (indent (lambda (text)
                        (string-replace "\n" (concat "\n" (make-string 15 ?\s)) text))))
    (insert (propertize mark 'face face)
            (format " %-12s %s\n" (plist-get check :name)
                    (funcall indent (plist-get check :detail))))
    (when-let ((fix (plist-get check :fix)))
      (insert (format "  %-12s %s\n" "fix:" (funcall indent fix))))))

(defun duet-rpc--make-file-links ()
  "Make a button of each name of an existing file on this machine."
  ;; Looking for files on another host could take long.
  (unless (file-remote-p default-directory)
    (save-excursion
      (goto-char (point-min))
      (while (re-search-forward "\\(?:^\\|[ (]\\)\\([~/][^ ,;:()\n]*[^] .,;:()\n]\\)" nil t)
        (let ((file (match-string-no-properties 1)))
          (when (and (file-exists-p file) (not (looking-at-p ":[0-9]")))
            (make-text-button (match-beginning 1) (match-end 1)
                              'type 'duet-rpc-place 'duet-rpc-file file)))))))

(defun duet-rpc--doctor-check-emacs ()
  "Report on this Emacs and on the libraries that it has loaded."
  (duet-rpc--doctor-set "Emacs" "ok"
                        (format "%s, %s" emacs-version
                                (expand-file-name invocation-name invocation-directory)))
  (duet-rpc--doctor-set "jsonrpc.el" "ok"
                        (format "%s, %s" (duet-rpc--jsonrpc-version)
                                (abbreviate-file-name (or (locate-library "jsonrpc") ""))))
  (duet-rpc--doctor-set "duet-rpc.el" "ok"
                        (format "%s, %s" duet-rpc--version
                                (abbreviate-file-name (or duet-rpc--file "unknown"))))
  (duet-rpc--doctor-check-load-path)
  (duet-rpc--doctor-set "options" "ok" (duet-rpc--doctor-changed-options)))

(defun duet-rpc--doctor-check-load-path ()
  "Report on the directories in `load-path' that have a duet-rpc.el."
  (let* ((loaded (and duet-rpc--file (file-name-directory duet-rpc--file)))
         (all (cl-remove-if-not
               (lambda (directory) (file-exists-p (expand-file-name "duet-rpc.el" directory)))
               (delete-dups (mapcar #'file-name-as-directory (delq nil load-path)))))
         (others (cl-remove-if (lambda (each) (and loaded (file-equal-p each loaded))) all)))
    (cond
     (others
      (duet-rpc--doctor-set
       "load path" "warn"
       (format "another duet-rpc.el is in %s" (mapconcat #'abbreviate-file-name others " "))
       "remove the directory with the older one from `load-path'"))
     (all (duet-rpc--doctor-set "load path" "ok" (abbreviate-file-name (car all))))
     (t (duet-rpc--doctor-set
         "load path" "ok" "has no duet-rpc.el; it was loaded by its file name")))))

(defun duet-rpc--jsonrpc-version ()
  "Return the version of jsonrpc.el, or \"unknown\"."
  (or (ignore-errors
        (require 'find-func)
        (require 'lisp-mnt)
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

(defun duet-rpc--doctor-check-program (server)
  "Report the command that is to start SERVER; run the program as doctor."
  (let ((buffer (current-buffer)))
    (condition-case err
        (let ((command (duet-rpc--in-directory server #'duet-rpc--command)))
          (duet-rpc--doctor-set "command" "ok" (mapconcat #'abbreviate-file-name command " "))
          (if (consp duet-rpc-program)
              (duet-rpc--doctor-set-program
               "ok" "cannot be checked: `duet-rpc-program' is a complete command")
            (duet-rpc--doctor-run-program
             server (lambda (output)
                      (duet-rpc--call-in-buffer buffer #'duet-rpc--doctor-report-program
                                                output)))))
      (duet-rpc-error
       (duet-rpc--doctor-set-program "fail" (cadr err))
       (duet-rpc--doctor-set "command" "fail" "no program to start"
                             (and (eq (car err) 'duet-rpc-program-not-found)
                                  (not duet-rpc-program)
                                  "M-x duet-rpc-install"))))))

(defun duet-rpc--doctor-set-program (status detail)
  "Report STATUS and DETAIL in place of the program's own report."
  (setq duet-rpc--program-checks
        (list (list :name "program" :status status :detail (string-trim detail))))
  (duet-rpc--doctor-print))

(defun duet-rpc--in-directory (server function)
  "Call FUNCTION with SERVER, in SERVER's working directory."
  (with-temp-buffer
    (setq default-directory (duet-rpc--directory server))
    (funcall function server)))

(defun duet-rpc--doctor-run-program (server then)
  "Run SERVER's program as doctor; call THEN with its output."
  (duet-rpc--in-directory
   server
   (lambda (server)
     (let ((command (append (duet-rpc--program-command server) '("doctor" "--json")
                            (cl-loop for (option value) on duet-rpc-arguments
                                     when (equal option "--methods")
                                     append (list option value))))
           (output ""))
       (condition-case err
           (make-process
            :name "duet-rpc doctor" :command command :noquery t
            :connection-type 'pipe :file-handler t :coding 'utf-8-unix
            :filter (lambda (_ text) (setq output (concat output text)))
            :sentinel (lambda (process _)
                        (unless (process-live-p process) (funcall then output))))
         (file-error
          (funcall then (format "%s.  Set `duet-rpc-python' to the Python to use"
                                (error-message-string err)))))))))

(defun duet-rpc--doctor-report-program (output)
  "Report what is in OUTPUT, the JSON that the program has printed."
  (let ((checks (ignore-errors
                  (with-temp-buffer
                    (insert output)
                    (goto-char (point-min))
                    (re-search-forward "^{") ; the log may come before it
                    (backward-char)
                    (append (plist-get (duet-rpc--read-json) :checks) nil)))))
    (if (not checks)
        (duet-rpc--doctor-set-program
         "fail" (if (string-blank-p output) "printed nothing" output))
      (setq duet-rpc--program-checks checks)
      (duet-rpc--doctor-print))))

(defun duet-rpc--doctor-check-daemon (server)
  "Report on SERVER, the daemon of this Emacs.
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
                              (duet-rpc--doctor-report-daemon
                               server (* 1000 (- (float-time) begin)))
                              (duet-rpc--doctor-check-backends server)))))))
    (funcall ask "version"
             (lambda (_)
               (duet-rpc--async-request
                server "listMethods" nil :timeout-fn fail
                :error-fn (lambda (err)
                            (duet-rpc--doctor-set "methods" "ok" (plist-get err :message))
                            (funcall ping nil))
                :success-fn (lambda (methods)
                              (duet-rpc--doctor-set
                               "methods" "ok"
                               (format "%d: %s" (length methods)
                                       (mapconcat #'duet-rpc--name methods " ")))
                              ;; The daemon finishes loading when it is idle.
                              (run-with-timer 0.3 nil #'duet-rpc--call-in-buffer
                                              (current-buffer) ping nil)))))
    (duet-rpc--doctor-set "daemon" "pending"
                          (format "%s, %d calls pending, waiting for an answer"
                                  (duet-rpc--server-state server)
                                  (hash-table-count (duet-rpc--server-pending server))))))

(defun duet-rpc--doctor-report-daemon (server milliseconds)
  "Report that SERVER, the daemon, has answered after MILLISECONDS."
  (duet-rpc--doctor-set
   "daemon" "ok"
   (format "%s, version %s, protocol %s, process %s, up %d s, answers after %.1f ms"
           (duet-rpc--server-state server)
           (or (duet-rpc--server-version server) "unknown")
           (or (plist-get (duet-rpc--server-info server) :protocolVersion) "unknown")
           (process-id (duet-rpc--server-process server))
           (- (float-time) (duet-rpc--server-start-time server))
           milliseconds))
  (duet-rpc--doctor-report-stderr server))

(defun duet-rpc--doctor-check-backends (server)
  "Report on the workers and backends of SERVER."
  (let ((fail (lambda (&optional err)
                (if (eql -32601 (plist-get err :code))
                    (duet-rpc--doctor-set "backends" "ok"
                                          "none; all methods run in the daemon")
                  (duet-rpc--doctor-set "backends" "fail"
                                        (or (plist-get err :message) "no answer"))))))
    (duet-rpc--async-request
     server "gateway/status" nil :timeout (min 10 duet-rpc-timeout)
     :error-fn fail :timeout-fn fail
     :success-fn
     (lambda (status)
       (duet-rpc--doctor-set
        "backends" "ok"
        (mapconcat (lambda (each)
                     (string-trim-right
                      (format "%s (%s): %s  %s" (plist-get each :name)
                              (plist-get each :kind) (plist-get each :state)
                              (or (plist-get each :reason) ""))))
                   (plist-get status :backends) "\n"))))))

(defun duet-rpc--doctor-report-stderr (server)
  "Report the end of SERVER's stderr."
  (let ((tail (duet-rpc--stderr-tail server 10)))
    (duet-rpc--doctor-set "stderr" "ok" (if (equal tail "") "none" tail))))

(defun duet-rpc--doctor-report-failure (server reason)
  "Report that SERVER does not answer because of REASON."
  (duet-rpc--doctor-set "daemon" "fail"
                        (format "%s: %s" (duet-rpc--server-state server) reason)
                        "M-x duet-rpc-show-log has all of its stderr")
  (duet-rpc--doctor-set "methods" "ok" "unknown")
  (duet-rpc--doctor-set "backends" "ok" "unknown")
  (duet-rpc--doctor-report-stderr server))

(provide 'duet-rpc)
;;; duet-rpc.el ends here
