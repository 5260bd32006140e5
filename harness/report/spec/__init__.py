"""What conf/table/ and conf/figure/ may say."""
