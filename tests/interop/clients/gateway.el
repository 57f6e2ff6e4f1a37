;;; gateway.el --- Emacs's own client and servers that others wrote -*- lexical-binding: t -*-

;;; Commentary:

;; DUET_RPC_CONFIG=… emacs -Q --batch -l gateway.el PYTHON DUET-RPC.PYZ FOLDER
;;
;; One connection of the stock jsonrpc.el, to `duet-rpc rpc', and behind it `pylsp', `time',
;; `files' and `everything'.  The tests share the connection and run in order of their names.

;;; Code:

(require 'cl-lib)
(require 'ert)
(require 'jsonrpc)

(defvar gateway-command
  (list (pop command-line-args-left) (pop command-line-args-left) "rpc"))

(defvar gateway-folder (file-name-as-directory (pop command-line-args-left)))

(defvar gateway-notifications nil "What has come unasked, the last one first.")

(defvar gateway-requests nil "Methods that servers have asked for, the last one first.")

(defun gateway-note (_connection method params)
  "Remember the notification METHOD with PARAMS."
  (push (cons method params) gateway-notifications))

(defun gateway-answer (_connection method _params)
  "Answer the request METHOD of a server."
  (push method gateway-requests)
  (pcase method
    ('everything/roots/list '(:roots [(:uri "file:///one" :name "one")]))
    ('everything/sampling/createMessage
     '(:model "none" :role "assistant" :content (:type "text" :text "Well enough.")))
    ('everything/elicitation/create '(:action "accept" :content (:name "Ada")))
    (_ (jsonrpc-error "Method not found: %s" method))))

(defvar gateway-connection
  (make-instance
   'jsonrpc-process-connection
   :name "gateway"
   :notification-dispatcher #'gateway-note
   :request-dispatcher #'gateway-answer
   :process (lambda ()
              (make-process :name "gateway" :command gateway-command
                            :connection-type 'pipe :coding 'utf-8-emacs-unix
                            :noquery t :stderr (get-buffer-create "*gateway stderr*")))))

(defun gateway-call (method &optional params)
  "Call METHOD with PARAMS."
  (jsonrpc-request gateway-connection method params :timeout 30))

(defun gateway-error (method &optional params)
  "Call METHOD with PARAMS, which must fail; return the error's alist."
  (condition-case caught
      (progn (gateway-call method params) (ert-fail "no error"))
    (jsonrpc-error (cddr caught))))

(defun gateway-text (result)
  "Return the text of a tool's RESULT."
  (should-not (eq (plist-get result :isError) t))
  (plist-get (aref (plist-get result :content) 0) :text))

(defun gateway-await (predicate what)
  "Wait until PREDICATE holds, which is WHAT."
  (with-timeout (30 (ert-fail (list "waited for" what)))
    (while (not (funcall predicate)) (accept-process-output nil 0.05))))

(defun gateway-status (name)
  "Return what the gateway says of the server NAME."
  (cl-find name (plist-get (gateway-call 'gateway/status) :backends)
           :key (lambda (each) (plist-get each :name)) :test #'equal))

(defun gateway-pending ()
  "Return how many requests are under way."
  (plist-get (gateway-call 'gateway/status) :pending))

(ert-deftest gateway-1-lists-and-calls-tools-of-three-servers ()
  ;; A merged list does not wait for a server that takes long to start.
  (dolist (name '("time" "files" "everything"))
    (gateway-call (intern (concat name "/initialize"))))
  (let ((names (mapcar (lambda (tool) (plist-get tool :name))
                       (plist-get (gateway-call 'tools/list) :tools))))
    (dolist (name '("time__convert_time" "files__read_text_file" "everything__get-sum"))
      (should (member name names))))
  (should (string-match-p
           "\\+09:00" (gateway-text (gateway-call 'time__get_current_time
                                                  '(:timezone "Asia/Tokyo")))))
  (should (equal (gateway-text
                  (gateway-call 'tools/call
                                (list :name "files__read_text_file"
                                      :arguments (list :path (concat gateway-folder
                                                                     "hello.txt")))))
                 "Grüße\n"))
  (should (string-match-p "日本 é 😀" (gateway-text
                                     (gateway-call 'everything__echo
                                                   '(:message "日本 é 😀"))))))

(ert-deftest gateway-2-completes-with-a-language-server ()
  (let ((document (list :uri (concat "file://" gateway-folder "a.py"))))
    (should (plist-get (plist-get (gateway-call 'pylsp/initialize
                                                (list :processId (emacs-pid) :rootUri nil
                                                      :capabilities (make-hash-table)))
                                  :capabilities)
                       :completionProvider))
    (jsonrpc-notify gateway-connection 'pylsp/initialized (make-hash-table))
    (jsonrpc-notify gateway-connection 'pylsp/textDocument/didOpen
                    (list :textDocument (append document '(:languageId "python" :version 1
                                                           :text "import json\njson.du"))))
    (let ((found (gateway-call 'pylsp/textDocument/completion
                               (list :textDocument document
                                     :position '(:line 1 :character 7)))))
      (should (cl-find-if (lambda (item)
                            (string-prefix-p "dumps" (plist-get item :label)))
                          (plist-get found :items))))
    (gateway-await (lambda () (assq 'pylsp/textDocument/publishDiagnostics
                                    gateway-notifications))
                   "diagnostics")))

(ert-deftest gateway-3-answers-what-a-server-asks ()
  (should (string-match-p "Well enough" (gateway-text
                                         (gateway-call 'everything__trigger-sampling-request
                                                       '(:prompt "Well?")))))
  (should (string-match-p "Ada" (format "%S" (gateway-call
                                              'everything__trigger-elicitation-request))))
  (should (string-match-p "file:///one" (gateway-text
                                         (gateway-call 'everything__get-roots-list))))
  (should (memq 'everything/roots/list gateway-requests))
  (should (= (gateway-pending) 0)))

(ert-deftest gateway-4-hears-of-progress-and-cancels ()
  (setq gateway-notifications nil)
  (gateway-call 'everything__trigger-long-running-operation
                '(:duration 0.3 :steps 3 :_meta (:progressToken "mine")))
  (let ((steps (mapcar #'cdr (cl-remove '$/progress gateway-notifications
                                        :key #'car :test-not #'eq))))
    (should (equal (mapcar (lambda (each) (plist-get (plist-get each :value) :done)) steps)
                   '(3 2 1)))
    (should (equal (plist-get (car steps) :token) "mine")))
  (setq gateway-notifications nil)
  (let (failed)
    (jsonrpc-async-request gateway-connection 'everything__trigger-long-running-operation
                           '(:duration 60 :steps 600 :_meta (:progressToken "other"))
                           :success-fn #'ignore
                           :error-fn (lambda (reply) (setq failed (plist-get reply :code))))
    (gateway-await (lambda () (assq '$/progress gateway-notifications)) "progress")
    (jsonrpc-notify gateway-connection '$/cancelRequest
                    (list :id (jsonrpc--next-request-id gateway-connection))) ; the last one
    (gateway-await (lambda () failed) "the end of what was cancelled")
    (should (= failed -32800)))
  (should (= (gateway-pending) 0)))

(ert-deftest gateway-5-lives-through-the-death-of-a-server ()
  (let ((pid (plist-get (gateway-status "everything") :pid))
        (other (plist-get (gateway-status "files") :pid))
        failed)
    (jsonrpc-async-request gateway-connection 'everything__trigger-long-running-operation
                           '(:duration 60 :steps 2)
                           :success-fn #'ignore
                           :error-fn (lambda (reply) (setq failed reply)))
    (gateway-call 'version)
    (signal-process pid 'KILL)
    (gateway-await (lambda () failed) "the news")
    (should (= (plist-get failed :code) -32803))
    (should (equal (plist-get (plist-get failed :data) :signal) "SIGKILL"))
    (should (string-match-p "hello.txt" (gateway-text
                                         (gateway-call 'files__list_directory
                                                       (list :path gateway-folder)))))
    (gateway-await (lambda () (equal (plist-get (gateway-status "everything") :state) "ready"))
                   "its restart")
    (should (string-match-p "42" (gateway-text (gateway-call 'everything__get-sum
                                                             '(:a 40 :b 2)))))
    (should (= (plist-get (gateway-status "files") :pid) other))
    (should-not (= (plist-get (gateway-status "everything") :pid) pid))))

(ert-deftest gateway-6-leaves-nothing-behind ()
  (let ((pids (mapcar (lambda (each) (plist-get each :pid))
                      (plist-get (gateway-call 'gateway/status) :backends)))
        (process (jsonrpc--process gateway-connection)))
    (should (cl-every #'integerp pids))
    (gateway-call 'shutdown)
    (gateway-await (lambda () (not (process-live-p process))) "the end of the gateway")
    (should (= (process-exit-status process) 0))
    (should-not (cl-some #'process-attributes pids))))

(ert-run-tests-batch-and-exit)

;;; gateway.el ends here
