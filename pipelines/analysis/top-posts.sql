-- The three posts with the most votes for each label.
SELECT label_topic, post_score, title
  FROM (SELECT label_topic, post_score, title, fullname,
               ROW_NUMBER() OVER (PARTITION BY label_topic ORDER BY post_score DESC, fullname) AS place
          FROM labeled_posts
         WHERE label_topic IS NOT NULL AND post_score IS NOT NULL) AS ranked
 WHERE place <= 3
 ORDER BY label_topic, place
