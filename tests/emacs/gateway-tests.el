;;; gateway-tests.el --- Other servers, through the daemon  -*- lexical-binding: t; -*-

;;; Commentary:

;; The real daemon; behind it the server of tests/backend.py, which does
;; what it is told to.  Called `plain', it speaks Content-Length; called
;; `mcp', it is an MCP server, whose `tools/call' returns its params.

;;; Code:

(require 'duet-rpc-test-helpers)

(defmacro duet-rpc-test-with-config (config &rest body)
  "Run BODY with the real daemon, configured by CONFIG."
  (declare (indent 1) (debug t))
  `(let ((file (make-temp-file "duet-rpc" nil ".toml" ,config))
         (duet-rpc--handlers (make-hash-table :test #'equal)))
     (unwind-protect
         (with-environment-variables (("DUET_RPC_CONFIG" file))
           (save-window-excursion
             (duet-rpc-test-with-pyz
               ,@body
               ;; The list may have sent a request of its own.
               (duet-rpc-test-until (= 0 (duet-rpc-test-pending))))))
       (delete-file file)
       (when-let ((list (get-buffer "*duet-rpc backends*")))
         (kill-buffer list)))))

(defmacro duet-rpc-test-with-backends (&rest body)
  "Run BODY with `plain' and `mcp' behind the daemon."
  (declare (indent 0) (debug t))
  `(duet-rpc-test-with-config
       (concat (duet-rpc-test-backend "plain" "content-length")
               (duet-rpc-test-backend "mcp" "lines" "mcp"))
     ,@body))

(defun duet-rpc-test-backend-status (name)
  "Return what the daemon says of the backend NAME."
  (cl-find name (plist-get (duet-rpc-request "gateway/status") :backends)
           :test #'equal :key (lambda (each) (plist-get each :name))))

(defun duet-rpc-test-exited-p (pid)
  "Return non-nil if the process PID has exited."
  (let ((state (alist-get 'state (process-attributes pid))))
    (member state '(nil "Z"))))

(defun duet-rpc-test-row (name)
  "Return the line of NAME in the list of backends."
  (with-current-buffer "*duet-rpc backends*"
    (save-excursion
      (goto-char (point-min))
      (if (re-search-forward (format "^ *%s " name) nil t)
          (buffer-substring-no-properties (line-beginning-position) (line-end-position))
        ""))))

(defun duet-rpc-test-go-to (name)
  "Go to the line of NAME in the list of backends."
  (pop-to-buffer "*duet-rpc backends*")
  (goto-char (point-min))
  (re-search-forward (format "^ *%s " name)))


(defun duet-rpc-test-called ()
  "Return the name and the arguments of the tool call that the result shows."
  (let ((result (duet-rpc-test-result)))
    (cons (plist-get result :name) (plist-get result :arguments))))


;;; Calling

(ert-deftest duet-rpc-one-process-has-methods-and-backends ()
  (duet-rpc-test-with-backends
    (should (eq 'stopped (duet-rpc-status)))
    (should (equal (duet-rpc-request "plain/echo" '(:text "é" :n 1.0))
                   '(:text "é" :n 1.0)))
    (should (eq 'ready (duet-rpc-status)))
    (let ((pid (duet-rpc-test-pid)))
      (should (duet-rpc-request "version"))
      (should (= pid (duet-rpc-test-pid)))
      (duet-rpc-restart)
      (should (duet-rpc-request "version"))
      (should-not (= pid (duet-rpc-test-pid)))
      (should (duet-rpc-test-exited-p pid)))))

(ert-deftest duet-rpc-backend-calls-have-the-same-outcomes ()
  (duet-rpc-test-with-backends
    (let ((err (should-error (duet-rpc-request "plain/nonsense")
                             :type 'duet-rpc-error)))
      (should (equal (duet-rpc-error-code err) -32601)))
    (should-error (duet-rpc-request "plain/hold" nil :timeout 0.3)
                  :type 'duet-rpc-timeout)
    (let (got)
      (duet-rpc-async-request
       "plain/echo" '(:a 1) :success-fn (lambda (result) (push result got)))
      (duet-rpc-async-request
       "plain/nonsense" nil :error-fn (lambda (err) (push (plist-get err :code) got)))
      (duet-rpc-async-request
       "plain/progress" '(:x 1) :progress-fn (lambda (value) (push value got)))
      (duet-rpc-cancel (duet-rpc-async-request "plain/hold" nil
                                                       :error-fn #'ert-fail))
      (duet-rpc-test-until (= 3 (length got)))
      (should (member '(:done 1.0) got)))
    (duet-rpc-notify "plain/hello" '(:n 1))
    (let ((seen (mapcar (lambda (each) (plist-get each :method))
                        (duet-rpc-request "plain/seen"))))
      ;; One call timed out, one was cancelled.
      (should (equal seen '("$/cancelRequest" "$/cancelRequest" "hello"))))))

(ert-deftest duet-rpc-backend-call-is-cancelled-by-quit ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "mcp/initialize")
    (let ((inhibit-quit nil))
      (should (eq 'quit (duet-rpc-test-quitting 0.3
                          (duet-rpc-test-call "mcp/hold" nil)))))
    (should (= 0 (plist-get (duet-rpc-request "gateway/status") :pending)))
    (should (cl-find "notifications/cancelled" (duet-rpc-request "mcp/seen")
                     :test #'equal :key (lambda (each) (plist-get each :method))))))


;;; Exits

(ert-deftest duet-rpc-backend-finishes-50-calls-of-a-crashed-backend ()
  (duet-rpc-test-with-backends
    (let ((ends (make-vector 50 0)) texts other)
      (should (duet-rpc-request "mcp/pid"))
      (dotimes (i 50)
        (duet-rpc-async-request
         "plain/hold" nil
         :success-fn (lambda (_) (cl-incf (aref ends i)))
         :timeout-fn (lambda () (cl-incf (aref ends i)))
         :error-fn (lambda (err)
                     (cl-incf (aref ends i))
                     (push (plist-get (plist-get err :data) :stderr) texts))))
      (duet-rpc-async-request "mcp/hold" nil
                                      :error-fn (lambda (err) (setq other err)))
      (let ((err (should-error (duet-rpc-request "plain/die" '(:code 3))
                               :type 'duet-rpc-error)))
        (should (= -32803 (duet-rpc-error-code err)))
        (should (= 3 (plist-get (duet-rpc-error-data err) :exitCode))))
      (duet-rpc-test-until (= 50 (length texts)))
      (accept-process-output nil 0.2)
      (should (equal ends (make-vector 50 1)))
      (should (equal (delete-dups texts) '("last words")))
      ;; The other backend's call is still pending, and the daemon runs.
      (should-not other)
      (should (= 1 (duet-rpc-test-pending)))
      (duet-rpc-request "mcp/release")
      (duet-rpc-test-until (equal "ready" (plist-get (duet-rpc-test-backend-status "plain")
                                                     :state)))
      (should (integerp (duet-rpc-request "plain/pid"))))))

(ert-deftest duet-rpc-backend-restarts-after-a-crash ()
  (duet-rpc-test-with-backends
    (let ((pids (list (duet-rpc-request "plain/pid")
                      (duet-rpc-request "mcp/pid")))
          ended)
      (duet-rpc-backends)
      (duet-rpc-async-request "plain/hold" nil
                                      :error-fn (lambda (err) (push err ended)))
      (let ((shown (duet-rpc-test-messages
                     (signal-process (duet-rpc-test-pid) 9)
                     (duet-rpc-test-until ended))))
        (should (string-match-p "duet-rpc was killed by signal 9; \
restarting in 1 s" shown)))
      (should (= 1 (length ended)))
      (should (eq 'waiting (duet-rpc-status)))
      (should (string-match-p "plain +backend +gone +0" (duet-rpc-test-row "plain")))
      (duet-rpc-test-until (cl-every #'duet-rpc-test-exited-p pids))
      (duet-rpc-test-until (eq 'ready (duet-rpc-status)))
      (duet-rpc-test-until (string-match-p "stopped" (duet-rpc-test-row "plain")))
      (should (integerp (duet-rpc-request "plain/pid")))
      (duet-rpc-test-until (string-match-p "ready" (duet-rpc-test-row "plain"))))))

(ert-deftest duet-rpc-backend-gives-up-on-a-broken-configuration ()
  (duet-rpc-test-with-config "[backends.x]\ncommand = 5\n"
    (dotimes (_ duet-rpc--max-quick-exits)
      (should-error (duet-rpc-request "version") :type 'duet-rpc-error))
    (should (eq 'failed (duet-rpc-status)))
    (let ((text (cadr (should-error (duet-rpc-backends) :type 'user-error))))
      (should (string-match-p "M-x duet-rpc-restart" text))
      (should (string-match-p "backends.x.command" text)))))


;;; What backends send

(defun duet-rpc-test-asked (method &optional params)
  "Have the backend `plain' ask METHOD with PARAMS; return the answer it got."
  (let ((answer (duet-rpc-request
                 "plain/ask" (list :id 1 :method method
                                   :params (or params (make-hash-table))))))
    (or (plist-get answer :error) (list :result (plist-get answer :result)))))

(ert-deftest duet-rpc-backend-handler-answers-a-backend ()
  (duet-rpc-test-with-backends
    (let (where)
      (duet-rpc-handle "plain/double"
                               (lambda (params)
                                 (setq where default-directory)
                                 (* 2 (plist-get params :n))))
      (should (equal (duet-rpc-test-asked "double" '(:n 21)) '(:result 42)))
      (should (equal where "/")))
    ;; It may itself call, wait, and prompt the user.
    (duet-rpc-handle "plain/roots"
                             (lambda (_) (list :pid (duet-rpc-request "mcp/pid"))))
    (should (integerp (plist-get (plist-get (duet-rpc-test-asked "roots") :result) :pid)))
    ;; Also if more output follows the request.
    (let ((text (make-string 500000 ?x)) received)
      (duet-rpc-handle "plain/big" (lambda (params) (push (plist-get params :text) received)))
      (duet-rpc-handle "plain/m" (lambda (_) (duet-rpc-request "plain/pid")))
      (should (integerp
               (plist-get (duet-rpc-request
                           "plain/ask"
                           (list :id 1 :method "m"
                                 :after (vector (list :jsonrpc "2.0" :method "big"
                                                      :params (list :text text)))))
                          :result)))
      (duet-rpc-test-until received)
      (should (equal received (list text))))
    (duet-rpc-handle "plain/nothing" #'ignore)
    (should (equal (duet-rpc-test-asked "nothing") '(:result nil)))
    (should (= 0 (plist-get (duet-rpc-request "gateway/status") :pending)))))

(ert-deftest duet-rpc-backend-answers-whatever-a-handler-does ()
  (duet-rpc-test-with-backends
    (cl-flet ((asked (function)
                (duet-rpc-handle "plain/m" function)
                (let ((answer (duet-rpc-test-asked "m")))
                  (cons (plist-get answer :code) (plist-get answer :message)))))
      (should (equal (asked (lambda (_) (jsonrpc-error :code 7 :message "not now")))
                     '(7 . "not now")))
      (let (answer)
        (should (string-match-p
                 "handler of plain/m failed: Oops"
                 (duet-rpc-test-messages
                   (setq answer (asked (lambda (_) (error "Oops")))))))
        (should (equal answer '(-32603 . "Oops"))))
      ;; Not JSON.
      (should (equal -32603 (car (asked (lambda (_) (list :a (current-buffer)))))))
      (should (equal -32603 (car (asked (lambda (_) "\xff")))))
      ;; The user quits; that also ends whatever is waiting.
      (let ((inhibit-quit nil) answer)
        (duet-rpc-async-request
         "plain/ask" '(:id 2 :method "m" :params [])
         :success-fn (lambda (result) (setq answer (plist-get result :error))))
        (duet-rpc-handle "plain/m" (lambda (_) (setq quit-flag t) (while t)))
        (should (eq 'quit (condition-case nil (duet-rpc-test-until answer) (quit 'quit))))
        (duet-rpc-test-until answer)
        (should (equal answer '(:code -32800 :message "Request cancelled")))))
    (should (= 0 (plist-get (duet-rpc-request "gateway/status") :pending)))))

(ert-deftest duet-rpc-backend-refuses-what-nobody-handles-at-once ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "plain/pid")
    (let ((begin (float-time)))
      (should (equal (plist-get (duet-rpc-test-asked "unknown") :code) -32601))
      (should (< (- (float-time) begin) 2)))
    (duet-rpc-handle "plain/unknown" #'always)
    (should (equal (duet-rpc-test-asked "unknown") '(:result t)))
    (duet-rpc-handle "plain/unknown" nil)
    (should (equal (plist-get (duet-rpc-test-asked "unknown") :code) -32601))))

(ert-deftest duet-rpc-backend-handler-gets-notifications ()
  (duet-rpc-test-with-backends
    (let (received states)
      (duet-rpc-handle "plain/flood"
                               (lambda (params) (push (plist-get params :number) received)))
      (duet-rpc-handle "gateway/stateChanged"
                               (lambda (params) (push (plist-get params :state) states)))
      (duet-rpc-request "plain/flood" '(:count 300))
      (duet-rpc-test-until (= 300 (length received)))
      (should (equal (nreverse received) (number-sequence 0 299)))
      (should (equal states '("ready")))
      ;; A handler that fails does not block the next notification.
      (setq received nil)
      (duet-rpc-handle "plain/flood"
                               (lambda (params)
                                 (push params received)
                                 (error "Oops")))
      (let ((debug-on-error nil))
        (should (string-match-p
                 "handler of plain/flood failed: Oops"
                 (duet-rpc-test-messages
                   (duet-rpc-request "plain/flood" '(:count 3))
                   (duet-rpc-test-until (= 3 (length received))))))))))

(ert-deftest duet-rpc-backend-replies-while-a-request-is-being-sent ()
  ;; The id of the reply is not mistaken for that of the request.
  (duet-rpc-test-with-backends
    (duet-rpc-request "plain/pid")
    (let ((answered nil))
      (duet-rpc-handle "plain/m" (lambda (_) (setq answered t)))
      (cl-letf* ((send (symbol-function 'process-send-string))
                 ((symbol-function 'process-send-string)
                  (lambda (process string)
                    (funcall send process string)
                    (when (string-match-p "plain/hold" string)
                      (duet-rpc-notify "plain/ask" '(:id 1 :method "m"))
                      (duet-rpc-test-until answered)))))
        (let ((call (duet-rpc-async-request "plain/hold" nil)))
          (should answered)
          (duet-rpc-cancel call)))
      (should (= 0 (duet-rpc-test-pending)))
      (duet-rpc-test-until
       (= 0 (plist-get (duet-rpc-request "gateway/status") :pending))))))


;;; The list

(ert-deftest duet-rpc-backends-lists-them ()
  (duet-rpc-test-with-backends
    (duet-rpc-backends)
    (should (derived-mode-p 'duet-rpc-backends-mode))
    (should (equal (mapcar #'car tabulated-list-entries) '("plain" "mcp")))
    (should (string-match-p "plain +backend +stopped +0 +0 +plain, content-length"
                            (duet-rpc-test-row "plain")))
    (let ((pid (duet-rpc-request "mcp/pid")))
      (duet-rpc-test-until
       (string-match-p (format "mcp +backend +ready +%d +0 +0 +[0-9]+s +mcp, lines" pid)
                       (duet-rpc-test-row "mcp"))))
    ;; While nothing changes, nothing is requested.
    (accept-process-output nil 0.3)
    (let ((last duet-rpc--last-token)
          (end (+ (float-time) 1)))
      (while (< (float-time) end)
        (accept-process-output nil 0.05))
      (should (= last duet-rpc--last-token))
      (should-not (cl-some #'timer--repeat-delay timer-list)))
    (let ((call (duet-rpc-async-request "plain/hold" nil)))
      (duet-rpc-test-until
       (string-match-p "plain +backend +ready +[0-9]+ +1 " (duet-rpc-test-row "plain")))
      (duet-rpc-cancel call)
      (duet-rpc-test-until
       (string-match-p "plain +backend +ready +[0-9]+ +0 " (duet-rpc-test-row "plain"))))
    ;; A change while it waits for a reply is not lost.
    (duet-rpc-test-until (not duet-rpc--refreshing))
    (setq duet-rpc--refreshing t)
    (duet-rpc--refresh-backends-async (duet-rpc--server))
    (let ((call (duet-rpc-async-request "plain/hold" nil)))
      (duet-rpc-test-until
       (string-match-p "plain +backend +ready +[0-9]+ +1 " (duet-rpc-test-row "plain")))
      (duet-rpc-cancel call))
    ;; While not displayed, it is updated only on demand.
    (duet-rpc-test-until (not duet-rpc--refreshing))
    (quit-window)
    (let ((before (duet-rpc-test-row "plain")))
      (duet-rpc-request "gateway/stop" '(:backend "plain"))
      (duet-rpc-test-until (equal "stopped" (plist-get (duet-rpc-test-backend-status "plain")
                                                       :state)))
      (should (equal before (duet-rpc-test-row "plain")))
      (pop-to-buffer "*duet-rpc backends*")
      (call-interactively (key-binding "g"))
      (should (string-match-p "plain +backend +stopped" (duet-rpc-test-row "plain"))))
    ;; Sorted by number.
    (goto-char (point-min))
    (tabulated-list-sort 3)
    (tabulated-list-sort 3)
    (revert-buffer)
    (should (equal (tabulated-list-get-id (point-min)) "mcp"))))

(ert-deftest duet-rpc-backends-restarts-and-stops ()
  (duet-rpc-test-with-backends
    (let ((pid (duet-rpc-request "mcp/pid"))
          (other (duet-rpc-request "plain/pid")))
      (duet-rpc-backends)
      (duet-rpc-test-go-to "mcp")
      (call-interactively (key-binding "r"))
      (duet-rpc-test-until
       (let ((now (plist-get (duet-rpc-test-backend-status "mcp") :pid)))
         (and now (/= now pid))))
      (duet-rpc-test-until (string-match-p "ready" (duet-rpc-test-row "mcp")))
      (should (duet-rpc-test-exited-p pid))
      ;; Point stays on its line, in the window too.
      (should (equal "mcp" (tabulated-list-get-id)))
      (should (equal "mcp" (tabulated-list-get-id (window-point))))
      (should (= other (duet-rpc-request "plain/pid")))
      (dolist (key '("k" "s"))
        (should (duet-rpc-request "mcp/pid"))
        (duet-rpc-test-until (string-match-p "ready" (duet-rpc-test-row "mcp")))
        (call-interactively (key-binding key))
        (duet-rpc-test-until (string-match-p "mcp +backend +stopped" (duet-rpc-test-row "mcp"))))
      (should (= other (duet-rpc-request "plain/pid")))
      (goto-char (point-max))
      (should-error (duet-rpc-backends-restart) :type 'user-error))))

(ert-deftest duet-rpc-backends-shows-why-one-failed ()
  (duet-rpc-test-with-config
      (concat (duet-rpc-test-backend "broken" "lines" "die-at-once=7")
              "[backends.missing]\ncommand = [\"no-such-program\"]\n")
    (duet-rpc-backends)
    (should-error (duet-rpc-request "missing/x") :type 'duet-rpc-error)
    (duet-rpc-test-until (string-match-p "failed.*no-such-program"
                                         (duet-rpc-test-row "missing")))
    (should-error (duet-rpc-request "broken/x") :type 'duet-rpc-error)
    (duet-rpc-test-until (string-match-p "backoff.*7" (duet-rpc-test-row "broken")))
    (duet-rpc-test-go-to "broken")
    (call-interactively (key-binding "l"))
    (should (equal (buffer-name) "*duet-rpc stderr of broken*"))
    (should (string-match-p "not today" (buffer-string)))
    (revert-buffer)
    (should (string-match-p "not today" (buffer-string)))
    (duet-rpc-test-go-to "missing")
    (call-interactively (key-binding "l"))
    (should (string-match-p "nothing" (buffer-string)))
    (duet-rpc-test-go-to "broken")
    (call-interactively (key-binding "L"))
    (should (equal (buffer-name) "*duet-rpc log*"))
    (duet-rpc-test-until (string-match-p "broken.*not today" (buffer-string)))))

(ert-deftest duet-rpc-backends-says-that-there-are-none ()
  (duet-rpc-test-with-config ""
    (should (string-match-p "No workers and no backends.*\\[backends.NAME\\]"
                            (duet-rpc-test-messages (duet-rpc-backends))))
    (should (derived-mode-p 'duet-rpc-backends-mode))
    (should-not tabulated-list-entries)))

(ert-deftest duet-rpc-backends-calls-a-tool-or-a-method ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "mcp/initialize")  ; a list does not wait for a slow start
    (duet-rpc-backends)
    (duet-rpc-test-go-to "mcp")
    (duet-rpc-test-typing "tool0 RET 5 RET" (call-interactively (key-binding "c")))
    (should (equal (duet-rpc-test-called) '("tool0" :x 5)))
    (duet-rpc-test-go-to "plain")
    (duet-rpc-test-typing "echo RET {\"a\":1} RET" (call-interactively (key-binding "\r")))
    (should (equal (duet-rpc-test-result) '(:a 1)))))


;;; Calling interactively

(ert-deftest duet-rpc-call-offers-tools ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "mcp/initialize")  ; a list does not wait for a slow start
    (let (table)
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_ collection &rest _) (setq table collection) "version")))
        (duet-rpc--read-method "Call: " (duet-rpc--methods))
        (let ((names (all-completions "" table)))
          (dolist (name '("mcp__tool0" "mcp__tool1"))
            (should (= 1 (cl-count name names :test #'equal))))
          (should-not (member "gateway/status" names)))
        (should (equal '("gateway/status") (all-completions "gateway/sta" table)))
        (should (equal '("version") (all-completions "version" table)))
        (should (string-match-p
                 "([[]x])"
                 (funcall (alist-get 'annotation-function
                                     (cdr (funcall table "" nil 'metadata)))
                          "mcp__tool0")))))))

(ert-deftest duet-rpc-call-takes-methods-without-a-description ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "mcp/initialize")  ; a list does not wait for a slow start
    (with-temp-buffer
      (duet-rpc-test-typing "mcp__tool1 RET 7 RET" (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-called) '("tool1" :x 7)))
      (duet-rpc-call-again)
      (should (equal (duet-rpc-test-called) '("tool1" :x 7)))
      (duet-rpc-test-typing "plain/echo RET RET {\"b\":2} RET"
        (call-interactively #'duet-rpc-call))
      (should (equal (duet-rpc-test-result) '(:b 2)))
      (should (equal (should-error
                      (duet-rpc-test-typing "other/echo RET RET RET"
                        (call-interactively #'duet-rpc-call)))
                     '(user-error "other/echo: Method not found"))))))

(defun duet-rpc-test-tool (how &rest result)
  "Call a tool that returns RESULT; use that in the way HOW."
  (duet-rpc-test-call "mcp/tools/call" result how))

(ert-deftest duet-rpc-call-shows-what-tools-return ()
  (duet-rpc-test-with-backends
    (cl-flet ((shown (&rest result)
                (apply #'duet-rpc-test-tool nil result)
                (with-current-buffer "*duet-rpc result*"
                  (cons major-mode (string-trim (buffer-string))))))
      (should (equal (shown :content [(:type "text" :text "one\n\"two\"")
                                      (:type "text" :text "é")])
                     '(text-mode . "one\n\"two\"\né")))
      (should (string-match-p "\\`{\n *\"a\": 1\n}\\'"
                              (cdr (shown :structuredContent '(:a 1)
                                          :content [(:type "text" :text "{\"a\": 1}")]))))
      (should (string-match-p "\\`{\n *\"a\": 1\n}\\'"
                              (cdr (shown :structuredContent '(:a 1) :content []))))
      ;; A text that says more than its structure.
      (should (equal (shown :structuredContent '(:content "x\ny")
                            :content [(:type "text" :text "x\ny")])
                     '(text-mode . "x\ny")))
      (should (equal (cdr (shown :content [(:type "image" :mimeType "image/png" :data "AAAA")
                                           (:type "resource" :resource (:uri "u" :text "t"))
                                           (:type "resource" :resource (:uri "u"))
                                           (:type "resource_link" :uri "file:///x")]))
                     "[image, image/png, 3 bytes]\nt\nu\nfile:///x"))
      (should (equal (shown :content []) '(text-mode . "")))
      ;; No result of a tool at all.
      (should (string-match-p "\"odd\": 1" (cdr (shown :odd 1)))))
    (with-temp-buffer
      (duet-rpc-test-tool 'insert :content [(:type "text" :text "hi")])
      (should (equal (buffer-string) "hi")))
    (should (equal (should-error
                    (duet-rpc-test-tool nil :isError t
                                        :content [(:type "text" :text "no such zone")]))
                   '(user-error "mcp/tools/call: no such zone")))
    (should (equal (should-error (duet-rpc-test-tool nil :isError t :content []))
                   '(user-error "mcp/tools/call: failed")))))

(duet-rpc-define-command duet-rpc-test-tool-command "mcp__tool0"
  :params (:x prompt) :result (lambda (result) (setq duet-rpc-test-got result)))

(ert-deftest duet-rpc-define-command-takes-a-tool ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "mcp/initialize")  ; a list does not wait for a slow start
    (with-temp-buffer
      (duet-rpc-test-typing "8 RET" (duet-rpc-test-tool-command))
      (should (equal (plist-get duet-rpc-test-got :arguments) '(:x 8))))))

;;; Lists and status

(ert-deftest duet-rpc-list-methods-has-the-tools ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "mcp/initialize")  ; a list does not wait for a slow start
    (duet-rpc-restart)
    (duet-rpc-list-methods)
    (goto-char (point-min))
    (should (search-forward "mcp__tool0"))
    (duet-rpc-test-typing "4 RET" (duet-rpc-methods-call))
    (should (equal (duet-rpc-test-called) '("tool0" :x 4)))))

(ert-deftest duet-rpc-doctor-looks-at-the-backends ()
  (duet-rpc-test-with-backends
    (duet-rpc-request "plain/pid")
    (duet-rpc-doctor)
    (duet-rpc-test-until (not (string-match-p "^…" (buffer-string))) 30)
    (should (string-match-p
             "^✓ backends +plain (backend): ready\n +mcp (backend): ready"
             (buffer-string)))))

(ert-deftest duet-rpc-backends-survives-a-failed-request ()
  (with-temp-buffer
    (setq duet-rpc--refreshing t)
    (cl-letf (((symbol-function 'duet-rpc--running-p) #'always)
              ((symbol-function 'duet-rpc--async-request)
               (lambda (&rest _) (signal 'duet-rpc-error '("cannot be sent")))))
      (duet-rpc--refresh-backends-async (duet-rpc--server)))
    (should-not duet-rpc--refreshing)))

;;; gateway-tests.el ends here
