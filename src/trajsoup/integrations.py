"""For other people's trainers: `from trajsoup.integrations import SoupCallback` (transformers, extra [train])."""

from trajsoup.lm.trainer_callback import SoupCallback as SoupCallback
