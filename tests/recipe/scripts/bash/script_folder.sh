HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NAME=$(basename "$0" .sh)
python3 -m verl.trainer.main_ppo dir=$HERE/ckpt name=$NAME
