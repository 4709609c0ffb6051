//! Tests files of other tools, whose columns have other names.

use super::*;
use topicmill_core::table;

#[test]
fn files_of_other_tools_are_imported() {
    let time = "2023-01-15 08:30";
    // A file's name and text, flags, a word of the log (empty if no column is renamed by itself), and the post's
    // fullname, subreddit, body, number of comments and time.
    for (name, text, flags, word, post) in table! {
        "dumps.csv",
            "author,title,score,created,link,text,url\nu/ada,Flour?,12,2023-01-15 08:30,https://www.reddit.com/r/Cooking/\
             comments/10ca1/flour/,I tried.,https://www.reddit.com/r/Cooking/comments/10ca1/flour/\n",
            "",
            "of PushshiftDumps: `text` as `selftext`, `link` as `permalink`, `created` as",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]);
        "4cat.csv",
            "thread_id,id,timestamp,body,subject,author,url,subreddit,parent,score,unix_timestamp\n10ca1,10ca1,2023-01-15 \
             08:30:00,I tried.,Flour?,ada,,Cooking,,3,1673771400\n,,,,,,,,,,\n",
            "",
            "of 4CAT: `subject` as `title`, `body` as `selftext`, `unix_timestamp` as",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]);
        "extractor.csv",
            "\"\",date_utc,timestamp,title,text,subreddit,comments,url\n1,2023-01-15,1673771400,Flour?,I tried.,Cooking,5,\
             https://www.reddit.com/r/Cooking/comments/10ca1/flour/\n",
            "",
            "of RedditExtractoR: ",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]);
        "urs.json",
            r#"{"scrape_settings": {"subreddit": "cooking"}, "data": [{"author": "u/ada", "created_utc":
            "01-15-2023 08:30:00", "distinguished": null, "id": "10ca1", "is_original_content": false, "nsfw": false,
            "num_comments": 5, "permalink": "/r/Cooking/comments/10ca1/flour/", "selftext": "I tried.", "spoiler": false,
            "title": "Flour?"}]}"#,
            "",
            "of URS: `nsfw` as `over_18`",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]);
        "bdfr.json",
            r#"{"title": "Flour?", "name": "t3_10ca1", "selftext": "I tried.", "permalink": "/r/Cooking/comments/10ca1/f/",
            "id": "10ca1", "num_comments": 1, "pinned": false, "locked": false, "distinguished": null,
            "created_utc": 1673771400.0, "comments": [{"id": "j1", "body": "Rye.", "parent_id": "t3_10ca1", "subreddit":
            "Cooking", "created_utc": 1673771500.0, "replies": []}]}"#,
            "",
            "a file of BDFR",
            json!(["t3_10ca1", "Cooking", "I tried.", 1, time]);
        "apify.json",
            r#"[{"id": "t3_10ca1", "parsedId": "10ca1", "url": "https://www.reddit.com/r/Cooking/comments/10ca1/f/",
            "username": "ada", "title": "Flour?", "communityName": "r/Cooking", "parsedCommunityName": "Cooking",
            "body": "I tried.", "numberOfComments": 5, "upVotes": 3, "createdAt": "2023-01-15T08:30:00.000Z",
            "dataType": "post"}]"#,
            "",
            "of Apify: ",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]);
        "capitals.csv",
            "ID,Title,Subreddit,Created UTC,SelfText,numComments\n10CA1,Flour?,r/Cooking,2023-01-15T08:30Z,I tried.,5\n",
            "",
            "`ID` as `id`",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]);
        "link.csv",
            "ref,Title,sub,when,Comments\nhttps://redd.it/10ca1?x=1,Flour?,https://www.reddit.com/r/Cooking/,2023/01/15 \
             08:30,[]\n",
            "--map id=ref --map subreddit=sub --map created_utc=when",
            "`Title` as `title`",
            json!(["t3_10ca1", "Cooking", "", null, time]);
        "praw.ndjson",
            "{}\nnull\n{\"id\":\"10ca1\",\"title\":\"Flour?\",\"body\":\"I tried.\",\"subreddit\":\"Cooking\",\
             \"created\":1673771400,\"comms_num\":5}\n{\"id\":null,\"title\":\"\"}\n",
            "",
            "`comms_num` as `num_comments`",
            json!(["t3_10ca1", "Cooking", "I tried.", 5, time]);
        "mapped.ndjson",
            r#"{"key": "10ca1", "title": "Flour?", "selftext": "no", "where": {"name": "Cooking"}, "essay": "I tried.",
            "created_utc": 1673771400}"#,
            "--map id=key --map subreddit=where.name --map selftext=essay",
            "",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]);
        "profile.json",
            r#"{"https://www.reddit.com/user/ada/comments/10ca1/f/": {"title": 1984, "text": 2.5, "date": "2023-01-15T08:30",
            "url": "https://www.reddit.com/user/ada/comments/10ca1/f/"}}"#,
            "",
            "`date` as `created_utc`",
            json!(["t3_10ca1", "u_ada", "2.5", null, time]);
        "pandas.json",
            r#"{"id": {"0": "10ca1"}, "title": {"0": "Flour?"}, "selftext": {"0": "I tried."}, "subreddit": {"0":
            "Cooking"}, "created_utc": {"0": 1673771400}}"#,
            "",
            "",
            json!(["t3_10ca1", "Cooking", "I tried.", null, time]);
        "elsewhere.ndjson",
            r#"{"id":"10ca1","title":"R","selftext":"","body":"no","created_utc":1673771400,"subreddit":"Cooking",
            "link":"https://example.org/comments/zz9/","url":"https://www.reddit.com/r/other/comments/zz9/r/"}"#,
            "",
            "INFO reading `link` as `permalink` file",
            json!(["t3_10ca1", "Cooking", "", null, time]);
    } {
        let program = Program::new();
        program.write(name, text.replace("\n            ", " "));
        let shown = program.ok(&format!("import {name} {flags} --dry-run"));
        assert!(!program.path("topicmill.db").exists());
        let ran = program.ok(&format!("import {name} {flags}"));
        if word.is_empty() {
            assert!(!ran.stderr.contains("` as `"), "{}", ran.stderr);
        } else {
            ran.expect_stderr(word);
        }
        let mut shown = shown.json();
        // Comments are tested in `comments.rs`.
        let rows = shown.as_array_mut().unwrap();
        rows.retain(|row| row["fullname"].as_str().unwrap().starts_with("t3_"));
        let columns = shown[0].as_object_mut().unwrap();
        // The hash of a name depends on the database, SQLite has no booleans, and posts have no parents.
        let not_compared = [
            "author",
            "over_18",
            "is_self",
            "post",
            "parent",
            "is_submitter",
        ];
        columns.retain(|name, _| !not_compared.contains(&name.as_str()));
        let names: Vec<&str> = columns.keys().map(String::as_str).collect();
        let rows = program.query(&format!("SELECT {} FROM posts", names.join(", ")));
        assert_eq!(json!(rows), shown, "{name}");
        let stored = "SELECT fullname, subreddit, selftext, num_comments, SUBSTR(REPLACE(created_at, 'T', ' '), 1, 16) \
            FROM posts";
        assert_eq!(program.rows(stored), json!([post]), "{name}");
    }
}
