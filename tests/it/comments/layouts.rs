//! Tests the layouts of files with comments.

use super::*;
use topicmill_core::table;

/// A file with the same two comments as the others, and with or without their post.
struct Layout {
    file: &'static str,
    text: String,
    has_post: bool,
}

fn layouts() -> [Layout; 7] {
    let thing = |kind: &str, data: Value| json!({"kind": kind, "data": data});
    let mut reply = comment("c2", "t1_c1", "I tried.");
    reply["replies"] = json!("");
    let mut top = comment("c1", "t3_p1", "Use rye.");
    let more = thing("more", json!({"id": "m1", "count": 7}));
    let children = json!([thing("t1", reply.clone()), more]);
    top["replies"] = thing("Listing", json!({"children": children}));
    let page = json!([
        thing("Listing", json!({"children": [thing("t3", post())]})),
        thing("Listing", json!({"children": [thing("t1", top)]})),
    ]);
    let bdfr = |id: &str, parent: &str, body: &str, replies: Value| {
        json!({
            "author": "ada", "id": id, "score": 1, "subreddit": "food", "submission": "p1", "stickied": false, "body": body,
            "is_submitter": false, "distinguished": null, "created_utc": 1_700_000_100.0, "parent_id": parent,
            "replies": replies,
        })
    };
    let nested = bdfr("c2", "t1_c1", "I tried.", json!([]));
    let mut thread = post();
    for name in ["pinned", "locked"] {
        thread[name] = json!(false);
    }
    thread["distinguished"] = Value::Null;
    thread["comments"] = json!([bdfr("c1", "t3_p1", "Use rye.", json!([nested]))]);
    let files = table! {
        "page.json", page.to_string(), true;
        "bdfr.json", thread.to_string(), true;
        "4cat.csv",
            "thread_id,id,timestamp,body,subject,author,subreddit,parent,score\n\
             p1,p1,1700000000,Dense.,My rye bread,baker,food,,9\np1,c1,1700000100,Use rye.,,ada,food,p1,1\n\
             p1,c2,1700000200,I tried.,,ben,food,c1,1\n".to_owned(),
            true;
        "urs.json",
            json!({"scrape_settings": {"style": "raw"}, "data": {
                "submission_metadata": {"title": "My rye bread", "is_original_content": false, "nsfw": false, "spoiler":
                    false, "created_utc": "11-14-2023 22:13:20", "permalink": "https://www.reddit.com/r/food/comments/p1/rye/"},
                "comments": [
                    {"id": "c1", "body": "Use rye.", "link_id": "t3_p1", "parent_id": "t3_p1", "created_utc":
                     "11-14-2023 22:15:00"},
                    {"id": "c2", "body": "I tried.", "link_id": "t3_p1", "parent_id": "t1_c1", "created_utc":
                     "11-14-2023 22:16:40"}]}}).to_string(),
            true;
        "apify.json",
            json!([
                {"id": "t1_c1", "parsedId": "c1", "postId": "t3_p1", "parentId": "t3_p1", "username": "ada", "body": "Use rye.",
                 "url": "https://www.reddit.com/r/food/comments/p1/rye/c1/", "parsedCommunityName": "food",
                 "communityName": "r/food", "createdAt": "2023-11-14T22:15:00.000Z", "upVotes": 1, "dataType": "comment"},
                {"id": "t1_c2", "parsedId": "c2", "postId": "t3_p1", "parentId": "t1_c1", "username": "ben", "body": "I tried.",
                 "url": "https://www.reddit.com/r/food/comments/p1/rye/c2/", "parsedCommunityName": "food",
                 "communityName": "r/food", "createdAt": "2023-11-14T22:16:40.000Z", "upVotes": 1, "dataType": "comment"},
            ]).to_string(),
            false;
        "names.csv",
            "kind,id,body,subreddit,created_utc,parent_id,link_id\nt1,c1,Use rye.,food,1700000100,t3_p1,t3_p1\n\
             t1,c2,I tried.,food,1700000200,t1_c1,t3_p1\n".to_owned(),
            false;
        "addresses.tsv",
            "title\tpermalink\tbody\tcreated_utc\tparent\nRe: Rye\t/r/food/comments/p1/rye/c1/\tUse rye.\t1700000100\tt3_p1\n\
             Re: Rye\t/r/food/comments/p1/rye/c2/\tI tried.\t1700000200\tt1_c1\n".to_owned(),
            false;
    };
    files.map(|(file, text, has_post)| Layout {
        file,
        text,
        has_post,
    })
}

#[test]
fn every_layout_gives_the_same_comments() {
    for layout in layouts() {
        let (program, file) = (Program::new(), layout.file);
        program.write(file, layout.text);
        program.ok(&format!("import {file}"));
        let names = ["t1_c1", "t1_c2", "t3_p1"];
        let expected = &names[..2 + usize::from(layout.has_post)];
        let stored = program.column("SELECT fullname FROM things ORDER BY fullname");
        assert_eq!(stored, expected, "{file}");
        let stored = program
            .rows("SELECT fullname, post, parent, subreddit, body FROM comments ORDER BY fullname");
        let expected = json!([
            ["t1_c1", "t3_p1", "t3_p1", "food", "Use rye."],
            ["t1_c2", "t3_p1", "t1_c1", "food", "I tried."],
        ]);
        assert_eq!(stored, expected, "{file}");
    }
}

#[test]
fn an_import_of_posts_leaves_the_comments_of_any_layout_out() {
    for layout in layouts() {
        let (program, file) = (Program::new(), layout.file);
        program.write(file, layout.text);
        let ran = program.run(&format!("import {file} --kind posts"));
        let stored = ["posts", "comments"].map(|table| program.count(table));
        assert_eq!(
            stored,
            [u64::from(layout.has_post), 0],
            "{file}: {}",
            ran.stderr
        );
    }
}
