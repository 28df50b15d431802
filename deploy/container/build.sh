#!/bin/sh
# Builds a container image with Debian's Python 3.11, Zeus and its service. Needs root, buildah, debootstrap and pip.
#
#   deploy/container/build.sh                                             # from the packages of Debian 12
#   BASE=docker.io/library/python:3.11-slim deploy/container/build.sh     # on an image that has python3 with venv
#
# TAG is the name of the image. The default, zeus-energy:VERSION, is the one in deploy/kubernetes.
# In a container of its own, buildah needs STORAGE_DRIVER=vfs and BUILDAH_ISOLATION=chroot.
set -eu

here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
made=
trap 'for one in $made; do buildah rm "$one" > /dev/null || true; done; rm -rf "$work"' EXIT

# The base: a small Debian, from its own packages alone.
if [ -z "${BASE:-}" ]; then
  debootstrap --variant=minbase --include=ca-certificates,python3-venv bookworm "$work/debian" \
    "${MIRROR:-http://deb.debian.org/debian}"
  for junk in var/cache/apt var/lib/apt/lists var/log usr/share/doc usr/share/man usr/share/locale; do
    find "${work:?}/debian/$junk" -type f -delete
  done
  image=$(buildah from scratch)
  buildah add --quiet "$image" "$work/debian" / > /dev/null
  rm -rf "$work/debian"
else
  image=$(buildah from "$BASE")
fi
made=$image

# The packages are fetched here, so that pip's settings on this machine hold and the container needs no network.
mkdir "$work/wheels"
python3 -m pip wheel --quiet --no-deps --wheel-dir "$work/wheels" "$here"
wheel=$(basename "$work"/wheels/zeus_energy-*.whl)
version=$(echo "$wheel" | cut -d- -f2)
python3 -m pip download --quiet --only-binary :all: --python-version "${PYTHON_VERSION:-3.11}" \
  --constraint "$here/constraints.txt" --dest "$work/wheels" "$work/wheels/$wheel[service]"

inside() { buildah run --user 0 --volume "$work/wheels:/wheels:ro" "$image" -- "$@"; }
inside python3 -m venv /opt/zeus
inside /opt/zeus/bin/pip install --quiet --no-cache-dir --no-index --find-links /wheels "/wheels/$wheel[service]"
# The user and the group that deploy/kubernetes names. Some images have them under another name.
buildah run --user 0 "$image" -- sh -ec '
  rmdir /wheels
  getent passwd 1000 > /dev/null || useradd --uid 1000 --user-group zeus
  install -d -o 1000 -g 1000 /home/zeus'

buildah config \
  --user 1000:1000 --workingdir /home/zeus \
  --env PATH=/opt/zeus/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --env HOME=/home/zeus \
  --cmd --help --entrypoint '["/opt/zeus/bin/zeus"]' --port 7070 \
  --label org.opencontainers.image.title=zeus-energy \
  --label org.opencontainers.image.version="$version" \
  --label org.opencontainers.image.licenses=Apache-2.0 \
  --label org.opencontainers.image.description="Measures and cuts the energy of DNN training on GPUs" \
  "$image"
buildah commit --quiet "$image" "${TAG:-zeus-energy:$version}" > /dev/null
echo "${TAG:-zeus-energy:$version}"
