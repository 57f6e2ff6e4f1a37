;;; workers-tests.el --- Workers behind the one connection  -*- lexical-binding: t; -*-

;;; Commentary:

;; The real daemon, and files of methods with a block "# /// script", each
;; of which runs in a process of its own.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-folder (expand-file-name "~/.config/duet-rpc/methods/"))

(defun duet-rpc-test-write (name &rest lines)
  "Save the file NAME of methods with LINES, in Emacs."
  (make-directory duet-rpc-test-folder t)
  (with-current-buffer (find-file-noselect (expand-file-name name duet-rpc-test-folder))
    (erase-buffer)
    (insert (string-join lines "\n") "\n")
    (let ((inhibit-message t)) (save-buffer))
    (kill-buffer)))

(defun duet-rpc-test-python (name)
  "Return a file with a method NAME_pid and a command NAME-sleep."
  (format "import os, time
from duet_rpc import command, method

@method
def %1$s_pid() -> int:
    return os.getpid()

@command(name='%1$s-sleep', result='message')
def %1$s_sleep() -> str:
    until = time.monotonic() + 30
    while time.monotonic() < until and not os.path.exists('%2$s%1$s.stop'):
        time.sleep(0.01)
    return 'slept'
" name (expand-file-name "~/")))

(defconst duet-rpc-test-block "# /// script\n# ///\n")

(defmacro duet-rpc-test-with-folder (&rest body)
  "Run BODY with the real daemon and a folder of methods of its own."
  (declare (indent 0) (debug t))
  `(unwind-protect
       (save-window-excursion
         (duet-rpc-test-with-pyz ,@body))
     (duet-rpc-mode -1)
     (ignore-errors (delete-file (duet-rpc--commands-file)))
     (dolist (file (directory-files "~/" t "\\.stop\\'")) (delete-file file))
     (when-let ((list (get-buffer "*duet-rpc backends*"))) (kill-buffer list))
     (delete-directory duet-rpc-test-folder t)))

(defun duet-rpc-test-release (name)
  "Let NAME-sleep return."
  (write-region "" nil (expand-file-name (concat name ".stop") "~/") nil 'silent))

(defun duet-rpc-test-worker (name)
  "Return the status of the worker NAME."
  (cl-find name (plist-get (duet-rpc-request "gateway/status") :backends)
           :test #'equal :key #'duet-rpc--name))


(ert-deftest duet-rpc-first-worker-appears-while-emacs-is-connected ()
  (duet-rpc-test-with-folder
    (duet-rpc-test-write "a.py" (duet-rpc-test-python "a"))
    (duet-rpc-mode 1)
    (let ((a (duet-rpc-request "a_pid"))
          (daemon (duet-rpc-test-pid)))
      (should (= a daemon))
      (duet-rpc-test-write "b.py" duet-rpc-test-block (duet-rpc-test-python "b"))
      ;; Saved in Emacs, it is a command at once.
      (duet-rpc-test-until (commandp 'b-sleep))
      (should-not (memq (duet-rpc-request "b_pid") (list nil a)))
      (should-not (= (duet-rpc-request "a_pid") (duet-rpc-request "b_pid")))
      (should (= daemon (duet-rpc-test-pid)))
      (duet-rpc-test-until (not duet-rpc--refreshing-commands))
      (should (equal "b.py" (plist-get (duet-rpc--find-named
                                     "b_pid" (duet-rpc--server-methods (duet-rpc--server)))
                                    :x-worker)))
      ;; The daemon answers while a worker computes.
      (call-interactively 'b-sleep)
      (should (integerp (duet-rpc-request "a_pid" nil :timeout 5)))
      (should (member "a_pid" (mapcar #'duet-rpc--name (duet-rpc--methods))))
      (duet-rpc-test-release "b")
      (duet-rpc-test-idle))))

(ert-deftest duet-rpc-worker-that-is-busy-explains-the-wait ()
  (duet-rpc-test-with-folder
    (duet-rpc-test-write "a.py" (duet-rpc-test-python "a"))
    (duet-rpc-test-write "b.py" duet-rpc-test-block (duet-rpc-test-python "b"))
    (duet-rpc-mode 1)
    (duet-rpc-request "b_pid")
    (duet-rpc-test-until (commandp 'b-sleep))
    (duet-rpc-test-until (cl-some (lambda (method) (plist-get method :x-worker))
                                  (duet-rpc--server-methods (duet-rpc--server))))
    (call-interactively 'b-sleep)
    ;; Another one behind it, and one in another worker.
    (call-interactively 'a-sleep)
    (call-interactively 'b-sleep)
    (duet-rpc--update-mode-line)
    (should (string-match-p "\\` \\[b-sleep 1 ahead 0s \\+2\\]\\'" duet-rpc--mode-line))
    (let ((err (should-error (duet-rpc-request "b_pid" nil :timeout 1)
                             :type 'duet-rpc-timeout)))
      (dolist (page '("emacs.md" "workers.md"))
        (should (string-match-p
                 (concat "\\`"
                         (duet-rpc-test-quoted page "word_count: no answer"
                                               '("word_count" . "b_pid")
                                               '("count_primes" . "b-sleep"))
                         "\\'")
                 (cadr err)))))
    (duet-rpc-backends)
    (should (string-match-p "b.py +worker +ready .* b_sleep [0-9]+s \\+1 +.*python"
                            (buffer-string)))
    (should (string-match-p "main +worker +ready .* a_sleep [0-9]+s " (buffer-string)))
    (duet-rpc-test-release "a")
    (duet-rpc-test-release "b")
    (duet-rpc-test-idle)
    (duet-rpc-test-until (= 0 (duet-rpc-test-pending)))))

(ert-deftest duet-rpc-worker-is-known-without-the-mode ()
  (duet-rpc-test-with-folder
    (duet-rpc-test-write "a.py" (duet-rpc-test-python "a"))
    (duet-rpc-test-write "b.py" duet-rpc-test-block (duet-rpc-test-python "b"))
    (duet-rpc-request "b_pid")
    (duet-rpc-request "a_pid")
    (duet-rpc-test-until (duet-rpc--find-named
                          "b_sleep" (duet-rpc--server-methods (duet-rpc--server))))
    (let ((call (duet-rpc-async-request "b_sleep" nil :timeout 60)))
      ;; This one waits for nobody.
      (should (integerp (duet-rpc-request "a_pid" nil :timeout 5)))
      (should-not (duet-rpc--calls-ahead
                   (duet-rpc--make-call :server (duet-rpc--server) :method "a_pid"
                                        :token (1+ duet-rpc--last-token))))
      (duet-rpc-test-release "b")
      (duet-rpc-test-until (duet-rpc--call-outcome call)))))

(ert-deftest duet-rpc-backends-restarts-a-worker ()
  (duet-rpc-test-with-folder
    (duet-rpc-test-write "b.py" duet-rpc-test-block (duet-rpc-test-python "b"))
    (let ((pid (duet-rpc-request "b_pid")))
      (duet-rpc-backends)
      (goto-char (point-min))
      (re-search-forward "^ *b.py ")
      (call-interactively (key-binding "r"))
      (duet-rpc-test-until (let ((now (duet-rpc-request "b_pid"))) (/= pid now)))
      (call-interactively (key-binding "l"))
      (should (equal (buffer-name) "*duet-rpc stderr of b.py*"))
      (pop-to-buffer "*duet-rpc backends*")
      (duet-rpc-test-typing "b_pid RET" (call-interactively (key-binding "c")))
      (should (integerp (duet-rpc-test-result)))
      (duet-rpc-test-until (= 0 (duet-rpc-test-pending))))))

(ert-deftest duet-rpc-environment-that-is-made-stops-the-clock ()
  ;; What the daemon sends while it makes one.
  (duet-rpc-test-with-fake
    (duet-rpc-request "version")
    (let* ((server (duet-rpc--server))
           (state (lambda (state reason)
                    (duet-rpc--dispatch-notification
                     server 'gateway/stateChanged
                     (list :name "csv" :kind "worker" :state state :reason reason)))))
      (setf (duet-rpc--server-methods server) '((:name "never" :x-worker "csv")))
      (funcall state "starting" "installing pandas…")
      (let ((call (duet-rpc-async-request "never" nil :timeout 0.2 :timeout-fn #'ignore)))
        (should (equal (duet-rpc--waiting-notice call)
                       "waiting for never… (worker csv: installing pandas…; C-g cancels)"))
        (accept-process-output nil 0.7)
        (should-not (duet-rpc--call-outcome call))
        (funcall state "ready" nil)
        (duet-rpc-test-until (eq 'timeout (car (duet-rpc--call-outcome call)))))
      ;; A command says so in the echo area.
      (let ((call (duet-rpc--async-request server "never" nil :label "never" :timeout 'none
                                           :success-fn #'ignore)))
        (should (string-match-p "worker csv: building numpy"
                                (duet-rpc-test-messages-for 0.2
                                  (funcall state "starting" "building numpy…"))))
        (duet-rpc-cancel call)))))

;;; workers-tests.el ends here
