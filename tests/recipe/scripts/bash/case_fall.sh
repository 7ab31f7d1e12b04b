case abc in
  a*) X=1 ;&
  zzz) Y=2 ;;
esac
case abc in a*) Z=1 ;;& *c) W=3 ;; *) V=4 ;; esac
python3 -m verl.trainer.main_ppo x=$X y=$Y z=$Z w=$W v=${V:-none}
