#!/bin/sh
# Fetches the two viewers from the npm registry and packs what is served of
# them. Run it in this folder to move to other versions; the result is
# committed, so that no build needs the network.
set -eu
here=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent swagger-ui-dist@5.34.1 redoc@2.5.4 >/dev/null
mkdir s r
tar xzf swagger-ui-dist-*.tgz -C s --strip-components=1
tar xzf redoc-*.tgz -C r --strip-components=1

gzip -9nc s/swagger-ui-bundle.js >"$here/swagger/swagger-ui-bundle.js.gz"
gzip -9nc s/swagger-ui.css >"$here/swagger/swagger-ui.css.gz"
cp s/LICENSE s/NOTICE "$here/swagger/"
cp s/swagger-ui-bundle.js.LICENSE.txt "$here/swagger/THIRD-PARTY.txt"

# ReDoc shows its maker's logo, loaded from the maker's server. Ours must work
# without the internet and tell nobody, so the picture is left out.
sed 's|https://cdn.redoc.ly/redoc/logo-mini.svg|data:,|' r/bundles/redoc.standalone.js | gzip -9nc >"$here/redoc/redoc.standalone.js.gz"
cp r/LICENSE "$here/redoc/"
cp r/bundles/redoc.standalone.js.LICENSE.txt "$here/redoc/THIRD-PARTY.txt"
