#!/usr/bin/env python3
"""Writes a dump as Reddit's months are: NDJSON in zstd with a long window.

    generate.py OUT.zst GIGABYTES SHARE

SHARE of the rows, 0 to 1, is of r/food, the others of subreddits that nobody asks for. The same arguments
give the same rows.
"""

import json
import random
import sys

import zstandard

WORDS = "the of a bread salt water and to was how my in it is for you oven with recipe that week new".split()


def row(draw, number, wanted):
    body = " ".join(draw.choices(WORDS, k=int(draw.expovariate(1 / 60)))) if draw.random() < 0.5 else ""
    name = "food" if wanted else draw.choice(["AskReddit", "memes", "funny", "pics", "teenagers"])
    ident = base36(number + 36**5)
    return {
        "all_awardings": [],
        "allow_live_comments": False,
        "archived": False,
        "author": f"user{draw.randrange(10**6)}",
        "author_flair_richtext": [],
        "author_flair_text": None,
        "author_flair_type": "text",
        "author_fullname": f"t2_{base36(draw.randrange(36**6))}",
        "author_premium": False,
        "awarders": [],
        "can_mod_post": False,
        "category": None,
        "contest_mode": False,
        "created_utc": 1_704_067_200 + number // 10,
        "distinguished": None,
        "domain": f"self.{name}",
        "edited": False,
        "gilded": 0,
        "gildings": {},
        "hidden": False,
        "id": ident,
        "is_created_from_ads_ui": False,
        "is_crosspostable": True,
        "is_meta": False,
        "is_original_content": False,
        "is_reddit_media_domain": False,
        "is_robot_indexable": True,
        "is_self": True,
        "is_video": False,
        "link_flair_background_color": "",
        "link_flair_css_class": None,
        "link_flair_richtext": [],
        "link_flair_text": None,
        "link_flair_text_color": "dark",
        "link_flair_type": "text",
        "locked": False,
        "media": None,
        "media_embed": {},
        "media_only": False,
        "name": f"t3_{ident}",
        "no_follow": True,
        "num_comments": draw.randrange(50),
        "num_crossposts": 0,
        "over_18": False,
        "parent_whitelist_status": "all_ads",
        "permalink": f"/r/{name}/comments/{ident}/a_title/",
        "pinned": False,
        "pwls": 6,
        "quarantine": False,
        "removed_by_category": None,
        "retrieved_on": 1_704_067_215 + number // 10,
        "score": draw.randrange(300),
        "secure_media": None,
        "selftext": body,
        "send_replies": True,
        "spoiler": False,
        "stickied": False,
        "subreddit": name,
        "subreddit_id": "t5_2qh55",
        "subreddit_name_prefixed": f"r/{name}",
        "subreddit_subscribers": 23_000_000,
        "subreddit_type": "public",
        "suggested_sort": None,
        "thumbnail": "self",
        "title": " ".join(draw.choices(WORDS, k=draw.randrange(3, 14))),
        "total_awards_received": 0,
        "treatment_tags": [],
        "upvote_ratio": round(draw.random(), 2),
        "url": f"https://www.reddit.com/r/{name}/comments/{ident}/a_title/",
        "whitelist_status": "all_ads",
        "wls": 6,
    }


def base36(number):
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def main():
    out, gigabytes, share = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    draw = random.Random(1)
    written = rows = 0
    params = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    with open(out, "wb") as file, zstandard.ZstdCompressor(compression_params=params).stream_writer(file) as packed:
        while written < gigabytes * 1e9:
            line = json.dumps(row(draw, rows, draw.random() < share), separators=(",", ":")).encode() + b"\n"
            packed.write(line)
            written += len(line)
            rows += 1
    print(f"{out}: {rows} rows, {written} bytes unpacked", file=sys.stderr)


if __name__ == "__main__":
    main()
