;;; servers.el --- Third-party servers, through duet-rpc.el  -*- lexical-binding: t; -*-

;;; Commentary:

;; tests/interop/test_gateway_servers.py runs this where the servers are installed.
;; DUET_RPC_CONFIG puts `pylsp', `time', `files' and `everything' behind the
;; daemon; FOLDER is the one that `files' serves.

;;; Code:

(require 'duet-rpc-test-helpers)

(defconst duet-rpc-test-folder (file-name-as-directory (getenv "FOLDER")))

(defun duet-rpc-test-shown ()
  "Return what the buffer of results shows."
  (with-current-buffer "*duet-rpc result*"
    (string-trim (buffer-string))))

(ert-deftest duet-rpc-has-tools-and-completions-over-one-connection ()
  (duet-rpc-test-with-pyz
    (let ((duet-rpc-timeout 30) received roots process)
      (duet-rpc-handle "everything/roots/list"
                       (lambda (_)
                         (setq roots t)
                         '(:roots [(:uri "file:///one" :name "one")])))
      (duet-rpc-handle "everything/sampling/createMessage"
                       (lambda (_)
                         '( :model "none" :role "assistant"
                            :content (:type "text" :text "Well enough."))))
      (duet-rpc-handle "pylsp/textDocument/publishDiagnostics"
                       (lambda (params) (setq received params)))
      ;; The list of tools does not wait for a server that takes long to start.
      (dolist (name '("time" "files" "everything"))
        (duet-rpc-request (concat name "/initialize")))
      (setq process (duet-rpc--server-process (duet-rpc--server)))
      (save-window-excursion
        ;; Tools of MCP servers, by hand.
        (with-temp-buffer
          (duet-rpc-test-typing "time__get_cur TAB RET Asia/Tokyo RET"
            (call-interactively #'duet-rpc-call))
          (should (string-match-p "\\+09:00" (duet-rpc-test-shown)))
          (duet-rpc-test-typing
              (format "files__read_text_file RET %shello.txt RET RET RET"
                      duet-rpc-test-folder)
            (call-interactively #'duet-rpc-call))
          (should (equal (duet-rpc-test-shown) "Grüße"))
          (duet-rpc-test-call "everything__get-structured-content" '(:location "New York"))
          (should (string-match-p "\\`{\n +\"temperature\": " (duet-rpc-test-shown)))
          (duet-rpc-test-call "everything__get-tiny-image" nil)
          (should (string-match-p "\\[image, image/png, [0-9]+ bytes]" (duet-rpc-test-shown)))
          (should (string-match-p
                   "files__read_text_file: .*denied"
                   (cadr (should-error (duet-rpc-test-call "files__read_text_file"
                                                      '(:path "/etc/hostname"))
                                       :type 'user-error))))
          ;; What a server asks on the way, a function here answers.
          (duet-rpc-test-call "everything__trigger-sampling-request" '(:prompt "Well?"))
          (should (string-match-p "Well enough" (duet-rpc-test-shown)))
          (duet-rpc-test-until roots)
          ;; A slow one.
          (let ((inhibit-quit nil))
            (should (eq 'quit
                        (duet-rpc-test-quitting 0.5
                          (duet-rpc-test-call "everything__trigger-long-running-operation"
                                         '(:duration 60 :steps 600))))))
          (duet-rpc-test-until
           (= 0 (plist-get (duet-rpc-request "gateway/status") :pending))))
        ;; A language server.
        (let ((document (list :uri (concat "file://" duet-rpc-test-folder "a.py"))))
          (duet-rpc-request "pylsp/initialize"
                                    (list :processId (emacs-pid) :rootUri nil
                                          :capabilities (make-hash-table)))
          (duet-rpc-notify "pylsp/initialized" (make-hash-table))
          (duet-rpc-notify
           "pylsp/textDocument/didOpen"
           (list :textDocument (append document '( :languageId "python" :version 1
                                                   :text "import json\njson.du"))))
          (let ((found (duet-rpc-request
                        "pylsp/textDocument/completion"
                        (list :textDocument document :position '(:line 1 :character 7)))))
            (should (cl-find-if (lambda (item)
                                  (string-prefix-p "dumps" (plist-get item :label)))
                                (plist-get found :items))))
          (duet-rpc-test-until received)
          (should (equal (plist-get received :uri) (plist-get document :uri))))
        (duet-rpc-backends)
        (dolist (name '("pylsp" "time" "files" "everything"))
          (goto-char (point-min))
          (should (re-search-forward (format "^ %s +backend +ready +[0-9]+ +0 +0 " name)))))
      (should (eq process (duet-rpc--server-process (duet-rpc--server)))))))

;;; servers.el ends here
