#!/bin/sh
# Make the user `reprise` (uid 10001) while an image is built: `--build-arg RUN_AS=reprise`, or
# `docker run --user reprise`, lets everything run as it. Base images give uid 1000 to others.
set -eu
useradd --create-home --uid 10001 --shell /bin/sh reprise
# A locked account is refused by sshd even with a key; this one just has no password.
usermod --password '*' reprise
rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid- /var/log/lastlog /var/log/faillog
