;;; emacs.el --- Time synchronous calls  -*- lexical-binding: t; -*-

;;; Commentary:

;; Time 1,000 calls of `duet-rpc-request' to the daemon, and the same of
;; `jsonrpc-request' to the leanest loop that Python can do.  Print one
;; line of JSON: medians in milliseconds, and the ratio with its spread.  DUET_RPC_EL, DUET_RPC_PYZ and DUET_RPC_LEAN name the
;; library, the daemon and the loop.

;;; Code:

;; Compiled, as packages are.
(let ((copy (expand-file-name "duet-rpc.el" (make-temp-file "duet-rpc" t))))
  (copy-file (getenv "DUET_RPC_EL") copy)
  (byte-compile-file copy)
  (load (concat copy "c") nil t)
  (delete-directory (file-name-directory copy) t))

(defconst bench-calls 1000)
(defconst bench-rounds 7)

(defun bench-lean ()
  "Return a function that calls the lean loop through jsonrpc.el alone."
  (let ((connection
         (apply #'make-instance 'jsonrpc-process-connection
                :name "lean"
                :process (lambda ()
                           (make-process
                            :name "lean" :noquery t :connection-type 'pipe
                            :coding 'utf-8-emacs-unix
                            :stderr (get-buffer-create "*lean stderr*")
                            :command (list duet-rpc-python "-I" "-S"
                                           (getenv "DUET_RPC_LEAN"))))
                (if (slot-exists-p 'jsonrpc-connection '-events-buffer-config)
                    '(:events-buffer-config (:size 0 :format full))
                  '(:events-buffer-scrollback-size 0)))))
    (lambda () (jsonrpc-request connection 'version nil :timeout 10))))

(defun bench-ms (function)
  "Return the milliseconds that `bench-calls' calls of FUNCTION take."
  (garbage-collect)
  (let ((begin (float-time)))
    (dotimes (_ bench-calls) (funcall function))
    (* 1000 (- (float-time) begin))))

(let* ((duet-rpc-program (getenv "DUET_RPC_PYZ"))
       (ours (lambda () (duet-rpc-request "version")))
       (lean (bench-lean))
       our-times lean-times)
  (funcall ours)
  (funcall lean)
  ;; In turns, so that a busy machine is unfair to neither.
  (dotimes (_ bench-rounds)
    (push (bench-ms ours) our-times)
    (push (bench-ms lean) lean-times))
  (let* ((ratios (sort (cl-mapcar #'/ our-times lean-times) #'<))
         (median (lambda (numbers) (nth (/ bench-rounds 2) (sort (copy-sequence numbers) #'<)))))
    (princ (json-encode
            (list :emacs emacs-version :calls bench-calls
                  :ours (funcall median our-times) :lean (funcall median lean-times)
                  :ratio (funcall median ratios)
                  :low (car ratios) :high (car (last ratios)))))))

;;; emacs.el ends here
