#!/bin/sh
# Installs what is missing, then compiles the SDK beside it and this plugin.
set -e
for folder in ../../sdk/typescript .; do
    [ "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ] || npm ci --silent --prefix "$folder"
done
node_modules/.bin/tsc --build
