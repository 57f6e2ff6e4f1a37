;;; results-tests.el --- What becomes of the results of commands  -*- lexical-binding: t; -*-

;;; Commentary:

;; With a fake server; commands-daemon-tests.el has the real one.

;;; Code:

(require 'duet-rpc-test-commands)


;;; Results

(ert-deftest duet-rpc-short-results-are-messages-and-long-ones-buffers ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (dolist (value '("short" 7 t))
      (duet-rpc-test-returns value)
      (should (equal (duet-rpc--format-value value) (duet-rpc-test-run 'my-do))))
    (dolist (value (list "two\nlines" (make-string 300 ?x) '(:a 1) [1 2]))
      (duet-rpc-test-returns value)
      (duet-rpc-test-run 'my-do)
      (should (equal value (duet-rpc-test-result)))
      (should (get-buffer-window "*duet-rpc result*")))
    (duet-rpc-test-returns nil)
    (should (equal "my-do: done" (duet-rpc-test-run 'my-do)))
    (duet-rpc-test-returns '(:empty nil :also [nil]))
    (duet-rpc-test-run 'my-do)
    (write-region "{\"empty\": {}, \"also\": [{}, null]}" nil
                  (concat duet-rpc-test-directory-of-commands "result.json") nil 'silent)
    (duet-rpc-test-run 'my-do)
    (with-current-buffer "*duet-rpc result*"
      (should (string-match-p "\"empty\": {}" (buffer-string)))
      (should (string-match-p "{},\n *null" (buffer-string))))))

(ert-deftest duet-rpc-a-list-of-objects-is-a-table ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (duet-rpc-test-returns [(:word "pear" :count 10) (:word "fig\nleaf" :count 9 :more [1])])
    (duet-rpc-test-run 'my-do)
    (with-current-buffer "*duet-rpc result*"
      (should (derived-mode-p 'tabulated-list-mode))
      (should (equal '("word" "count" "more")
                     (mapcar #'car (append tabulated-list-format nil))))
      (should (string-match-p "pear +10" (buffer-string)))
      (should (string-match-p "fig leaf +9 +\\[1\\]" (buffer-string)))
      (goto-char (point-min))
      (tabulated-list-sort 1)
      (goto-char (point-min))
      (should (looking-at-p " *fig")))))

(ert-deftest duet-rpc-a-text-may-have-a-major-mode ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (duet-rpc-test-returns '(:duet "text" :text "(car x)" :mode "lisp-mode"))
    (duet-rpc-test-run 'my-do)
    (with-current-buffer "*duet-rpc result*"
      (should (eq major-mode 'lisp-mode))
      (should (equal (buffer-string) "(car x)\n")))
    (dolist (mode '("no-such-mode" "kill-emacs" "auto-fill-mode"))
      (duet-rpc-test-returns (list :duet "text" :text "x" :mode mode))
      (duet-rpc-test-run 'my-do)
      (with-current-buffer "*duet-rpc result*"
        (should (eq major-mode 'text-mode))))))

(ert-deftest duet-rpc-an-image-can-be-saved-in-a-terminal ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (let ((file (concat duet-rpc-test-directory-of-commands "out.png"))
          (bytes "\x89PNG\r\n\x1a\n\0\xff"))
      (duet-rpc-test-returns (list :duet "image" :mime "image/png"
                                   :data (base64-encode-string (string-to-unibyte bytes))))
      (should (string-match-p "an image, which this Emacs cannot display"
                              (duet-rpc-test-run 'my-do)))
      (with-current-buffer "*duet-rpc image*"
        (should (string-match-p "image/png, 10 bytes" (buffer-string)))
        (cl-letf (((symbol-function 'read-file-name) (lambda (&rest _) file)))
          (push-button (point))))
      (should (equal (string-to-unibyte bytes)
                     (with-temp-buffer
                       (set-buffer-multibyte nil)
                       (insert-file-contents-literally file)
                       (buffer-string)))))))

(ert-deftest duet-rpc-insert-leaves-point-behind-the-result ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :result "insert"))
    (insert "ab")
    (goto-char 2)
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "aresultb"))
    (should (= 8 (point) (window-point))))
  (duet-rpc-test-with-commands
      (list (duet-rpc-test-simple :result "stream" :saveExcursion t))
    (insert "ab")
    (goto-char 2)
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "aresultb"))
    (should (= 2 (point)))))

(ert-deftest duet-rpc-replace-keeps-point-and-marks ()
  (duet-rpc-test-with-commands
      (list '("sort" (("text" (:type "string")))
              (:name "my-sort" :result "edit" :sources (:text "buffer"))))
    (insert "one two three\nfour five six\n")
    (goto-char 25)                      ; in front of "six"
    (let ((mark (copy-marker 5))
          (overlay (make-overlay 9 14)))
      (duet-rpc-test-returns "ONE two three\nfour FIVE six\n")
      (duet-rpc-test-run 'my-sort)
      (should (equal (buffer-string) "ONE two three\nfour FIVE six\n"))
      (should (looking-at-p "six"))
      (should (= 5 mark))
      (should (= 9 (overlay-start overlay)))
      ;; One undo takes it all back.
      (undo-boundary)
      (undo)
      (should (equal (buffer-string) "one two three\nfour five six\n")))))

(ert-deftest duet-rpc-replace-takes-no-time-with-a-large-text ()
  (with-temp-buffer
    (let (lines)
      (dotimes (i 20000)
        (push (format "%d line %d" (% (* i 7919) 20011) i) lines))
      (insert (string-join lines "\n") "\n")
      (goto-char (point-min))
      (forward-line 9000)
      (forward-char 3)
      (let ((sorted (concat (string-join (sort lines #'string<) "\n") "\n"))
            (begin (float-time)))
        (duet-rpc--replace-part (point-min) (point-max) sorted)
        (should (< (- (float-time) begin) 3))
        (should (equal sorted (buffer-string)))
        (should (equal '(9001 3) (list (line-number-at-pos) (current-column))))))))

(ert-deftest duet-rpc-edits-are-one-undo-step ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :result "edit"))
    (insert "hidden\nabc def ghi")
    (undo-boundary)
    (narrow-to-region 8 (point-max))
    (goto-char 12)
    (duet-rpc-test-returns [(:duet "edit" :edits [(:start 0 :end 3 :text "ABCD")])
                            (:duet "edit" :edits [(:start 8 :end 11 :text "")
                                                  (:start 4 :end 4 :text "é ")])])
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "ABCD é def "))
    (undo)
    (should (equal (buffer-string) "abc def ghi"))
    ;; What cannot be made is not made in part.
    (dolist (edits '([(:start 0 :end 1 :text "x") (:start 5 :end 99 :text "y")]
                     [(:start 0 :end 4 :text "x") (:start 2 :end 5 :text "y")]
                     [(:start -1 :end 4 :text "x")]))
      (duet-rpc-test-returns (list :duet "edit" :edits edits))
      (should (string-match-p "outside the text\\|overlap" (duet-rpc-test-run 'my-do)))
      (should (equal (buffer-string) "abc def ghi")))))

(ert-deftest duet-rpc-edits-of-a-region-count-from-its-beginning ()
  (duet-rpc-test-with-commands
      (list '("do" (("text" (:type "string"))) (:name "my-do" :sources (:text "region"))))
    (insert "abc def ghi")
    (goto-char 5)
    (push-mark 8 t t)
    (duet-rpc-test-returns '(:duet "edit" :edits [(:start 0 :end 1 :text "D")]))
    (duet-rpc-test-run 'my-do)
    (should (equal (buffer-string) "abc Def ghi"))))

(ert-deftest duet-rpc-a-change-is-reviewed-first ()
  (dolist (returned '("one\nTWO\n" (:duet "edit" :edits [(:start 4 :end 7 :text "TWO")])))
    (duet-rpc-test-with-commands
        (list '("do" (("text" (:type "string")))
                (:name "my-do" :result "edit" :review t :sources (:text "buffer"))))
      (let ((buffer (current-buffer)))
        (insert "one\ntwo\n")
        (duet-rpc-test-returns returned)
        (duet-rpc-test-run 'my-do)
        (should (equal (buffer-string) "one\ntwo\n"))
        (with-current-buffer "*duet-rpc review of my-do*"
          (should (string-match-p "^-two\n\\+TWO$" (buffer-string)))
          (call-interactively (key-binding (kbd "C-c C-k"))))
        (should (equal (buffer-string) "one\ntwo\n"))
        (set-window-buffer nil buffer)
        (duet-rpc-test-run 'my-do)
        (with-current-buffer "*duet-rpc review of my-do*"
          (call-interactively (key-binding (kbd "C-c C-c"))))
        (should-not (get-buffer "*duet-rpc review of my-do*"))
        (should (equal (buffer-string) "one\nTWO\n"))
        ;; The text may change while it is being reviewed.
        (duet-rpc-test-returns (if (stringp returned) "" '(:duet "edit" :edits
                                                                 [(:start 0 :end 8 :text "")])))
        (duet-rpc-test-run 'my-do)
        (goto-char 2)
        (insert "!")
        (with-current-buffer "*duet-rpc review of my-do*"
          (should (string-match-p "has changed meanwhile"
                                  (duet-rpc-test-messages
                                    (call-interactively (key-binding (kbd "C-c C-c")))))))
        (should (equal (buffer-string) "o!ne\nTWO\n"))))))

(ert-deftest duet-rpc-a-goto-visits-the-line ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (let ((file (concat duet-rpc-test-directory-of-commands "x.txt"))
          (buffer (current-buffer)))
      (write-region "one\ntwo\nthree\n" nil file nil 'silent)
      (duet-rpc-test-returns (list :duet "goto" :file file :line 3 :column 2))
      (duet-rpc-test-run 'my-do)
      (with-current-buffer (window-buffer)
        (should (equal file buffer-file-name))
        (should (looking-at-p "ree"))
        (kill-buffer))
      ;; Who has gone elsewhere is not taken away.
      (set-window-buffer nil (get-buffer-create "*scratch*"))
      (with-current-buffer buffer
        (duet-rpc-test-run 'my-do))
      (should (equal "*scratch*" (buffer-name (window-buffer))))
      (should (get-file-buffer file))
      (kill-buffer (get-file-buffer file)))))


;;; A result for a place that is gone

(defmacro duet-rpc-test-meanwhile (command &rest body)
  "Run COMMAND, run BODY before its result arrives, and return the messages."
  (declare (indent 1) (debug t))
  `(duet-rpc-test-messages
     (call-interactively ,command)
     ,@body
     (duet-rpc-test-idle)))

(ert-deftest duet-rpc-nothing-lands-in-the-wrong-place ()
  (duet-rpc-test-with-commands (list duet-rpc-test-sort)
    (duet-rpc-test-returns "XXX")
    (cl-flet ((prepare () (let ((inhibit-read-only t))
                            (widen)
                            (erase-buffer)
                            (insert "abc def ghi")
                            (goto-char 5)
                            (push-mark 8 t t))))
      ;; The text before and behind it may change, and point may move.
      (prepare)
      (duet-rpc-test-meanwhile 'my-sort
        (goto-char 1)
        (insert "12")
        (goto-char (point-max))
        (insert "34"))
      (should (equal (buffer-string) "12abc XXX ghi34"))
      (should (eobp))
      ;; It may be changed and changed back.
      (prepare)
      (duet-rpc-test-meanwhile 'my-sort
        (goto-char 6) (insert "!") (delete-char -1))
      (should (equal (buffer-string) "abc XXX ghi"))
      ;; It may be out of sight.
      (prepare)
      (duet-rpc-test-meanwhile 'my-sort
        (narrow-to-region 1 3))
      (should (equal (buffer-string) "ab"))
      (widen)
      (should (equal (buffer-string) "abc XXX ghi"))
      ;; But what was sent has to be there.
      (prepare)
      (should (string-match-p
               "my-sort: the text in .* has changed meanwhile; the result is in"
               (duet-rpc-test-meanwhile 'my-sort
                 (goto-char 6) (insert "!"))))
      (should (equal (buffer-string) "abc d!ef ghi"))
      (should (equal "XXX" (duet-rpc-test-result)))
      (prepare)
      (should (string-match-p "is read-only; the result is in"
                              (duet-rpc-test-meanwhile 'my-sort
                                (setq buffer-read-only t))))
      (should (equal (buffer-string) "abc def ghi"))
      (setq buffer-read-only nil)
      ;; Part of it may be read-only.
      (prepare)
      (should (string-match-p "read-only; the result is in"
                              (duet-rpc-test-meanwhile 'my-sort
                                (put-text-property 5 7 'read-only t))))
      (should (equal (buffer-string) "abc def ghi"))
      (let ((inhibit-read-only t)) (erase-buffer)))
    (let ((gone (generate-new-buffer "gone")))
      (with-current-buffer gone
        (insert "abc")
        (should (string-match-p "its buffer has been killed"
                                (duet-rpc-test-meanwhile 'my-sort
                                  (kill-buffer gone))))))))

(ert-deftest duet-rpc-an-insertion-needs-its-place ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple :result "insert"))
    (insert "abc")
    (goto-char 2)
    (duet-rpc-test-meanwhile 'my-do (insert "typed"))
    (should (equal (buffer-string) "aresulttypedbc"))
    (erase-buffer)
    (insert "abc")
    (goto-char 2)
    (should (string-match-p "the place for it in .* has been deleted"
                            (duet-rpc-test-meanwhile 'my-do (erase-buffer))))
    (should (equal (buffer-string) ""))
    (should-not (cl-remove t before-change-functions))))

(ert-deftest duet-rpc-edits-need-the-text-they-are-about ()
  (duet-rpc-test-with-commands (list (duet-rpc-test-simple))
    (insert "abc")
    (duet-rpc-test-returns '(:duet "edit" :edits [(:start 0 :end 1 :text "X")]))
    (should (string-match-p "has changed meanwhile"
                            (duet-rpc-test-meanwhile 'my-do (insert "d"))))
    (should (equal (buffer-string) "abcd"))
    (should (string-match-p "\"edits\"" (with-current-buffer "*duet-rpc result*"
                                          (buffer-string))))))

;;; results-tests.el ends here
