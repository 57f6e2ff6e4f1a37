#!/bin/sh
# Take a screenshot of M-x duet-rpc-call in a real Emacs window: screenshot.sh FILE.png
# EMACS names an Emacs that can open windows; the default is the first one found.
set -eu
out=$(realpath -m "${1:?usage: screenshot.sh FILE.png}")
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

graphical() {
  command -v "$1" > /dev/null &&
    [ "$("$1" -Q --batch --eval '(princ (featurep (quote x)))' 2> /dev/null)" = t ]
}

find_emacs() {
  for each in ${EMACS:-} emacs emacs-gtk emacs-lucid; do
    if graphical "$each"; then
      echo "$each"
      return
    fi
  done
}

emacs=$(find_emacs)
missing=
[ -n "$emacs" ] || missing="$missing emacs-lucid"
command -v Xvfb > /dev/null || missing="$missing xvfb"
command -v import > /dev/null || missing="$missing imagemagick"
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      fonts-dejavu-core $missing > /dev/null
    emacs=$(find_emacs)
  else
    echo "screenshot: not found:$missing" >&2
    exit 1
  fi
fi

home=$(mktemp -d)
mkdir -p "$(dirname "$out")"
Xvfb -displayfd 3 -screen 0 900x560x24 -nolisten tcp -noreset 3> "$home/display" 2> /dev/null &
server=$!
trap 'kill $server 2> /dev/null; wait $server 2> /dev/null; rm -rf "$home"' EXIT
tries=50
while [ ! -s "$home/display" ]; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || { echo "screenshot: Xvfb did not start" >&2; exit 1; }
  sleep 0.1
done

rm -f "$out"
cp "$root/elisp/duet-rpc.el" "$home"
cd "$home"
"$emacs" -Q --batch -f batch-byte-compile duet-rpc.el
DISPLAY=:$(cat "$home/display") HOME=$home \
EXAMPLES=$root/examples DUET_RPC_EL=$home/duet-rpc.elc DUET_RPC_PYZ=$root/dist/duet-rpc.pyz SCREENSHOT=$out \
  timeout 60 "$emacs" -Q --load "$here/screenshot.el"
[ -s "$out" ] || { echo "screenshot: Emacs wrote no image" >&2; exit 1; }
echo "wrote $out"
