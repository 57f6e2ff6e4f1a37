;;; duet-rpc.el --- stub
