"""Upper limits on data files: larger files, and small files that expand to more, are rejected before they are read."""

MAX_PREPARED_BYTES = 200_000_000_000  # of the prepared arrays of one dataset
MAX_TEXT_BYTES = 1_000_000_000  # of a text file, which is read as a whole
MAX_ARRAY_HEADER_BYTES = 10_000  # of an array in an npz file
MAX_IMAGE_PIXELS = 50_000_000  # of one picture
MAX_IMAGE_FILE_BYTES = 200_000_000  # of one picture
MAX_FOLDER_FILES = 10_000_000  # pictures of a folder
MAX_CLASSES = 100_000
MAX_COLUMNS = 100_000  # of a table
MAX_ROW_GROUP_BYTES = 4_000_000_000  # of a parquet file, uncompressed
MAX_CONTEXT_NUMBERS = 1_000_000  # of a sample of a text, or of the scores for its tokens: context · vocabulary
