;;; screenshot.el --- Set up the screenshot  -*- lexical-binding: t; -*-

;;; Commentary:

;; screenshot.sh loads this in an Emacs with a window.

;;; Code:

(load (getenv "DUET_RPC_EL") nil t)
(setq duet-rpc-program (getenv "DUET_RPC_PYZ")
      duet-rpc-arguments
      (cons "rpc" (mapcan (lambda (file) (list "--methods" file))
                          (directory-files (getenv "EXAMPLES") t "\\.py\\'")))
      inhibit-startup-screen t
      frame-resize-pixelwise t
      use-dialog-box nil
      icomplete-prospects-height 12
      max-mini-window-height 0.5)
(menu-bar-mode -1)
(tool-bar-mode -1)
(scroll-bar-mode -1)
(blink-cursor-mode -1)
(fido-vertical-mode 1)
(load-theme 'modus-operandi t)
(set-face-attribute 'default nil :family "DejaVu Sans Mono" :height 110)
(set-face-attribute 'completions-annotations nil :inherit 'shadow :slant 'normal)

(with-current-buffer (get-buffer-create "reformat.py")
  (insert-file-contents (expand-file-name "reformat.py" (getenv "EXAMPLES")))
  (search-forward "@command")
  (beginning-of-line)
  (delete-region (point-min) (point))
  (goto-char (point-min))
  (insert "from duet_rpc import Region, RpcError, command\n\n\n")
  (python-mode)
  (goto-char (point-min))
  (set-buffer-modified-p nil)
  (switch-to-buffer (current-buffer)))

(defun screenshot-fit ()
  "Make the frame fill the screen."
  (set-frame-position nil 0 0)
  (modify-frame-parameters nil '((internal-border-width . 6) (fullscreen . nil)))
  (set-frame-size nil (- (display-pixel-width) 12) (- (display-pixel-height) 12) t))

(defun screenshot-take ()
  "Take the screenshot and exit."
  (redisplay t)
  (call-process "import" nil nil nil "-window" "root" (getenv "SCREENSHOT"))
  (kill-emacs))

(run-with-timer 1 nil #'screenshot-fit)
(run-with-timer 2 nil (lambda ()
                        (duet-rpc-request "version")
                        (run-with-timer 3 nil #'screenshot-take)
                        (call-interactively #'duet-rpc-call)))

;;; screenshot.el ends here
