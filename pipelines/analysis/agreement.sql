-- Agreement of labels with the topics that posts were collected for.
SELECT topic, posts, labelled, agreed, agreement
  FROM topic_agreement
 ORDER BY agreement DESC, topic
