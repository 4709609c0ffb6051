-- The three posts with the highest Reddit score per label.
SELECT label, reddit_score, title
  FROM (SELECT label, reddit_score, title, fullname,
               ROW_NUMBER() OVER (PARTITION BY label ORDER BY reddit_score DESC, fullname) AS place
          FROM labeled_posts
         WHERE label IS NOT NULL AND reddit_score IS NOT NULL) AS ranked
 WHERE place <= 3
 ORDER BY label, place
