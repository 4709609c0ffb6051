"""Spark: python with_spark.py IN OUT labels Parquet files and writes the rows with a score of at least 0.7."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from topicmill import Labeler

if __name__ == "__main__":
    source, target = sys.argv[1:]
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    labeler = Labeler(labels=["cooking", "travel"], threads=1)
    posts = spark.read.parquet(source)
    columns = StructType(list(posts.schema)).add("label", "string").add("score", "double").add("margin", "double")
    labeled = posts.mapInArrow(lambda batches: map(labeler, batches), columns)
    labeled.where("score >= 0.7").write.parquet(target)
